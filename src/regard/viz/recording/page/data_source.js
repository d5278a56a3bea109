// The source of the weights: blocks of this file, unpacked on demand, or tiles from a server on this machine. A byte b
// is the weight scale·(b / 255)², around 128 in signed maps; the greatest weights of each row are stored exactly. Level L holds the greatest of every 2^L by 2^L weights.
const TILE = 256;
// The page shows the layers of one unit, tokens or words; the address names it, or the name of a frame that has no
// address of its own. `stored` and `block` are the places of a layer and of a map in this file or at the server.
const hasWords = data.layers.some((layer) => layer.unit === "words");
const namedUnit = () => (hasWords && /(^|[#&])units=words\b/.test(location.hash || window.name) ? "words" : "tokens");
const unit = namedUnit();
let blockCount = 0;
data.layers.forEach((layer, stored) => {
  Object.assign(layer, { stored, block: blockCount });
  blockCount += layer.heads;
});
data.layers = data.layers.filter((layer) => layer.unit === unit);
const maps = [];
for (const [l, layer] of data.layers.entries()) {
  layer.number = l;
  layer.first = maps.length;
  for (let head = 0; head < layer.heads; head++) maps.push({ n: maps.length, block: layer.block + head, layer, head, q: layer.q, k: layer.k, levels: [], sinks: [], scale: 1, signed: false });
}
for (const map of maps) Object.assign(map, data.maps[map.block]);
for (const map of maps) if (data.remote) map.levels = levelsOf(map);

function levelsOf(map) {
  const coarsest = Math.max(0, Math.ceil(Math.log2(Math.max(map.q, map.k, 1) / TILE)));
  return Array.from({ length: coarsest + 1 }, (_, n) => coarsest - n);
}

// A least-recently-used cache of asynchronous results: `peek` returns a finished one, `get` a promise.
class RecentCache {
  constructor(most) {
    this.most = most;
    this.entries = new Map();
  }
  peek(key) {
    const entry = this.entries.get(key);
    if (!entry) return undefined;
    this.entries.delete(key);
    this.entries.set(key, entry);
    return entry.value;
  }
  get(key, ask) {
    this.peek(key);
    if (!this.entries.has(key)) {
      const entry = { value: undefined };
      entry.promise = ask().then(
        (value) => (entry.value = value),
        (error) => {
          if (this.entries.get(key) === entry) this.entries.delete(key);
          throw error;
        },
      );
      this.entries.set(key, entry);
      if (this.entries.size > this.most) this.entries.delete(this.entries.keys().next().value);
    }
    return this.entries.get(key).promise;
  }
  drop(key) {
    this.entries.delete(key);
  }
}

const documentReady = new Promise((resolve) => {
  if (document.readyState !== "loading") resolve();
  else document.addEventListener("DOMContentLoaded", () => resolve());
});

function base64Bytes(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let n = 0; n < letters.length; n++) bytes[n] = letters.charCodeAt(n);
  return bytes;
}

async function unpack(chunk) {
  if (chunk === "-") return new Uint8Array(0);
  // written by hand: a Blob would travel to another process and back
  const { readable, writable } = new DecompressionStream("deflate");
  const pen = writable.getWriter();
  const written = pen.write(base64Bytes(chunk)).then(() => pen.close());
  const [bytes] = await Promise.all([new Response(readable).arrayBuffer(), written]);
  return new Uint8Array(bytes);
}

// Numbers from their byte planes.
function joinPlanes(bytes, size, Kind) {
  const count = bytes.length / size;
  const out = new Uint8Array(bytes.length);
  for (let s = 0; s < size; s++) for (let n = 0; n < count; n++) out[n * size + s] = bytes[s * count + n];
  return new Kind(out.buffer);
}

async function fetchOk(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer;
}

const blocks = new RecentCache(4);
const chunks = (map) =>
  blocks.get(map.n, async () => {
    let element = document.getElementById("m" + map.block);
    // a block with a following element has been parsed to its end
    if (!element || !element.nextElementSibling) await documentReady;
    element = element || document.getElementById("m" + map.block);
    return element.textContent.split(" ");
  });

const facts = new RecentCache(64);
// The exact weights, the sums and the sinks of a map; of a served map, after the server has read all of it.
const loadFacts = (map) =>
  facts.get(map.n, async () => {
    let part;
    if (data.remote) {
      const answer = await (await fetchOk(`facts/${map.block}`)).json();
      Object.assign(map, answer.facts, { levels: map.levels });
      part = answer.chunk;
    } else [part] = await chunks(map);
    const bytes = await unpack(part);
    const wide = map.k <= 65536 ? 2 : 4;
    let start = 0;
    const [values, columns, margins, sinkWeights] = [4 * map.q * map.top, wide * map.q * map.top, map.q + map.k, 4 * map.q * map.sinks.length].map(
      (count) => bytes.subarray(start, (start += count)),
    );
    const all = joinPlanes(sinkWeights, 4, Float32Array);
    return {
      values: joinPlanes(values, 4, Float32Array),
      columns: joinPlanes(columns, wide, wide === 2 ? Uint16Array : Uint32Array),
      received: margins.subarray(0, map.k),
      spread: margins.subarray(map.k),
      sinkWeights: map.sinks.map((_, s) => all.subarray(s * map.q, (s + 1) * map.q)),
    };
  });

const tileCache = new RecentCache(600);
const cellsOf = (n, level) => Math.ceil(n / 2 ** level);

// The bytes of a tile: {cells, height, width, done}; `done` is false while a server is still reading that part.
function tile(map, level, y, x) {
  const key = `${map.block}/${level}/${y}/${x}`;
  return tileCache.get(key, async () => {
    const height = Math.min(TILE, cellsOf(map.q, level) - y * TILE);
    const width = Math.min(TILE, cellsOf(map.k, level) - x * TILE);
    if (data.remote) {
      const answer = await fetchOk(`tile/${key}`);
      const done = answer.headers.get("X-Done") === "1";
      if (!done) setTimeout(() => tileCache.drop(key), 300);
      return { cells: new Uint8Array(await answer.arrayBuffer()), height, width, done };
    }
    let n = 1;
    for (const storedLevel of map.levels) {
      const across = Math.ceil(cellsOf(map.k, storedLevel) / TILE);
      if (storedLevel === level) {
        n += y * across + x;
        break;
      }
      n += across * Math.ceil(cellsOf(map.q, storedLevel) / TILE);
    }
    return { cells: await unpack((await chunks(map))[n]), height, width, done: true };
  });
}

const weightOf = (map, byte) => (map.signed ? map.scale * Math.sign(byte - 128) * ((byte - 128) / 127) ** 2 : map.scale * (byte / 255) ** 2);

// The weight of row i that is not on hidden sinks: the other weights are divided by it.
function remainingShare(map, statistics, i, hide = state.hide) {
  if (!hide || !map.sinks.length || !statistics) return 1;
  return Math.max(1e-6, statistics.sinkWeights.reduce((left, sink) => left - sink[i] / map.scale, 1));
}
const isHidden = (map, j) => state.hide && map.sinks.includes(j);

const rowCache = new RecentCache(200);
// A whole row: {weights, whole, exact}; not whole where only its greatest weights are stored.
async function row(map, i) {
  const statistics = data.remote ? facts.peek(map.n) : await loadFacts(map);
  const plain = await rowCache.get(`${map.n}/${i}`, async () => {
    if (data.remote) return { weights: new Float32Array(await (await fetchOk(`row/${map.block}/${i}`)).arrayBuffer()), whole: true, exact: true };
    const weights = new Float32Array(map.k);
    const whole = map.levels.includes(0);
    for (let x = 0; whole && x * TILE < map.k; x++) {
      const { cells, width } = await tile(map, 0, Math.floor(i / TILE), x);
      const start = (i % TILE) * width;
      for (let n = 0; n < width; n++) weights[x * TILE + n] = weightOf(map, cells[start + n]);
    }
    for (let n = i * map.top; n < (i + 1) * map.top; n++) weights[statistics.columns[n]] = statistics.values[n];
    map.sinks.forEach((j, s) => (weights[j] = statistics.sinkWeights[s][i]));
    return { weights, whole: whole || map.top >= map.k, exact: map.top >= map.k };
  });
  if (!state.hide || !map.sinks.length) return plain;
  const share = remainingShare(map, statistics, i);
  const weights = plain.weights.map((w, j) => (isHidden(map, j) ? 0 : w / share));
  return { ...plain, weights };
}

// The greatest weights of row i, exact: [[weight, key], …].
async function greatestWeights(map, i, count = 8) {
  if (data.remote) {
    const { weights } = await row(map, i);
    const order = ranked(Array.from(weights)).filter(([w, j]) => w !== 0 && !isHidden(map, j));
    return order.slice(0, count);
  }
  const statistics = await loadFacts(map);
  const share = remainingShare(map, statistics, i);
  const list = [];
  for (let n = i * map.top; n < (i + 1) * map.top && list.length < count; n++) {
    if (statistics.values[n] !== 0 && !isHidden(map, statistics.columns[n])) list.push([statistics.values[n] / share, statistics.columns[n]]);
  }
  return list;
}

// One weight: {w, sure}: "exact", "near" (from its byte) or "most" (no more than this); and its rank, if it is known.
async function weightAt(map, i, j) {
  if (data.remote) {
    const { weights } = await row(map, i);
    return { w: weights[j], certainty: "exact", rank: 1 + weights.reduce((n, w) => n + (w > weights[j]), 0) };
  }
  const statistics = await loadFacts(map);
  const share = remainingShare(map, statistics, i);
  for (let n = 0, rank = 1; n < map.top; n++) {
    const key = statistics.columns[i * map.top + n];
    if (key === j) return { w: statistics.values[i * map.top + n] / share, certainty: "exact", rank };
    rank += !isHidden(map, key);
  }
  const sink = map.sinks.indexOf(j);
  if (sink >= 0) return { w: statistics.sinkWeights[sink][i] / share, certainty: "exact", rank: null };
  const level = map.levels[map.levels.length - 1];
  const [y, x] = [i >> level, j >> level];
  const { cells, width } = await tile(map, level, Math.floor(y / TILE), Math.floor(x / TILE));
  const w = weightOf(map, cells[(y % TILE) * width + (x % TILE)]) / share;
  // a weight outside of the greatest is no greater than the least of them
  const least = map.top ? Math.abs(statistics.values[(i + 1) * map.top - 1]) / share : Infinity;
  if (level === 0) return { w: map.signed ? w : Math.min(w, least), certainty: "near", rank: null };
  return { w: Math.min(Math.abs(w), least), certainty: "most", rank: null };
}

const PREFIXES = { exact: "", near: "about ", most: "at most " };
const weightText = ({ w, certainty }) => PREFIXES[certainty] + number(w);
const number = (w) => (w === 0 ? "0" : Math.abs(w) < 0.0001 ? w.toExponential(1) : w.toFixed(4));
