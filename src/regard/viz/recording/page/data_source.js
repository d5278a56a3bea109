// Where weights come from: blocks of this file, unpacked when looked at, or a server on this machine, asked for tiles.
// A byte b stands for the weight scale·(b / 255)², signed maps have theirs around 128; the greatest weights of each row
// are exact beside them. Level L holds the greatest of every 2^L by 2^L weights.
const TILE = 256;
const maps = [];
for (const [l, layer] of data.layers.entries()) {
  layer.number = l;
  layer.first = maps.length;
  for (let head = 0; head < layer.heads; head++) maps.push({ n: maps.length, layer, head, q: layer.q, k: layer.k, levels: [], sinks: [], scale: 1, signed: false });
}
data.maps.forEach((facts, n) => Object.assign(maps[n], facts));
for (const map of maps) if (data.remote) map.levels = levelsOf(map);

function levelsOf(map) {
  const coarsest = Math.max(0, Math.ceil(Math.log2(Math.max(map.q, map.k, 1) / TILE)));
  return Array.from({ length: coarsest + 1 }, (_, n) => coarsest - n);
}

// The newest so many answers; a promise while it is waited for, then the answer itself.
class Recent {
  constructor(most) {
    this.most = most;
    this.held = new Map();
  }
  now(key) {
    const entry = this.held.get(key);
    if (!entry) return undefined;
    this.held.delete(key);
    this.held.set(key, entry);
    return entry.value;
  }
  get(key, ask) {
    this.now(key);
    if (!this.held.has(key)) {
      const entry = { value: undefined };
      entry.promise = ask().then(
        (value) => (entry.value = value),
        (error) => {
          if (this.held.get(key) === entry) this.held.delete(key);
          throw error;
        },
      );
      this.held.set(key, entry);
      if (this.held.size > this.most) this.held.delete(this.held.keys().next().value);
    }
    return this.held.get(key).promise;
  }
  drop(key) {
    this.held.delete(key);
  }
}

const parsed = new Promise((resolve) => {
  if (document.readyState !== "loading") resolve();
  else document.addEventListener("DOMContentLoaded", () => resolve());
});

function raw(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let n = 0; n < letters.length; n++) bytes[n] = letters.charCodeAt(n);
  return bytes;
}

async function unpacked(chunk) {
  if (chunk === "-") return new Uint8Array(0);
  // written by hand: a Blob would travel to another process and back
  const { readable, writable } = new DecompressionStream("deflate");
  const pen = writable.getWriter();
  const written = pen.write(raw(chunk)).then(() => pen.close());
  const [bytes] = await Promise.all([new Response(readable).arrayBuffer(), written]);
  return new Uint8Array(bytes);
}

// Numbers that were stored plane by plane.
function joined(bytes, size, Kind) {
  const count = bytes.length / size;
  const out = new Uint8Array(bytes.length);
  for (let s = 0; s < size; s++) for (let n = 0; n < count; n++) out[n * size + s] = bytes[s * count + n];
  return new Kind(out.buffer);
}

async function fetched(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer;
}

const blocks = new Recent(4);
const chunks = (map) =>
  blocks.get(map.n, async () => {
    let element = document.getElementById("m" + map.n);
    // a block that is followed by something has been read to its end
    if (!element || !element.nextElementSibling) await parsed;
    element = element || document.getElementById("m" + map.n);
    return element.textContent.split(" ");
  });

const facts = new Recent(64);
// The exact weights, the sums and the sinks of a map; of a served map, once the server has read it whole.
const known = (map) =>
  facts.get(map.n, async () => {
    let part;
    if (data.remote) {
      const answer = await (await fetched(`facts/${map.n}`)).json();
      Object.assign(map, answer.facts, { levels: map.levels });
      part = answer.chunk;
    } else [part] = await chunks(map);
    const bytes = await unpacked(part);
    const wide = map.k <= 65536 ? 2 : 4;
    let start = 0;
    const [values, columns, margins, drained] = [4 * map.q * map.top, wide * map.q * map.top, map.q + map.k, 4 * map.q * map.sinks.length].map(
      (count) => bytes.subarray(start, (start += count)),
    );
    const all = joined(drained, 4, Float32Array);
    return {
      values: joined(values, 4, Float32Array),
      columns: joined(columns, wide, wide === 2 ? Uint16Array : Uint32Array),
      received: margins.subarray(0, map.k),
      spread: margins.subarray(map.k),
      drained: map.sinks.map((_, s) => all.subarray(s * map.q, (s + 1) * map.q)),
    };
  });

const tileCache = new Recent(600);
const cellsOf = (n, level) => Math.ceil(n / 2 ** level);

// The bytes of a tile: {cells, height, width, done}; `done` is false while a server is still reading that part.
function tile(map, level, y, x) {
  const key = `${map.n}/${level}/${y}/${x}`;
  return tileCache.get(key, async () => {
    const height = Math.min(TILE, cellsOf(map.q, level) - y * TILE);
    const width = Math.min(TILE, cellsOf(map.k, level) - x * TILE);
    if (data.remote) {
      const answer = await fetched(`tile/${key}`);
      const done = answer.headers.get("X-Done") === "1";
      if (!done) setTimeout(() => tileCache.drop(key), 300);
      return { cells: new Uint8Array(await answer.arrayBuffer()), height, width, done };
    }
    let n = 1;
    for (const one of map.levels) {
      const across = Math.ceil(cellsOf(map.k, one) / TILE);
      if (one === level) {
        n += y * across + x;
        break;
      }
      n += across * Math.ceil(cellsOf(map.q, one) / TILE);
    }
    return { cells: await unpacked((await chunks(map))[n]), height, width, done: true };
  });
}

const weightOf = (map, byte) => (map.signed ? map.scale * Math.sign(byte - 128) * ((byte - 128) / 127) ** 2 : map.scale * (byte / 255) ** 2);

// What is left of row i for the other keys, when the sinks are hidden: everything is divided by it.
function rest(map, found, i, hide = state.hide) {
  if (!hide || !map.sinks.length || !found) return 1;
  return Math.max(1e-6, found.drained.reduce((left, sink) => left - sink[i] / map.scale, 1));
}
const hidden = (map, j) => state.hide && map.sinks.includes(j);

const rowCache = new Recent(200);
// A whole row: {weights, whole, exact}; not whole where only its greatest weights are kept.
async function row(map, i) {
  const found = data.remote ? facts.now(map.n) : await known(map);
  const plain = await rowCache.get(`${map.n}/${i}`, async () => {
    if (data.remote) return { weights: new Float32Array(await (await fetched(`row/${map.n}/${i}`)).arrayBuffer()), whole: true, exact: true };
    const weights = new Float32Array(map.k);
    const whole = map.levels.includes(0);
    for (let x = 0; whole && x * TILE < map.k; x++) {
      const { cells, width } = await tile(map, 0, Math.floor(i / TILE), x);
      const start = (i % TILE) * width;
      for (let n = 0; n < width; n++) weights[x * TILE + n] = weightOf(map, cells[start + n]);
    }
    for (let n = i * map.top; n < (i + 1) * map.top; n++) weights[found.columns[n]] = found.values[n];
    map.sinks.forEach((j, s) => (weights[j] = found.drained[s][i]));
    return { weights, whole: whole || map.top >= map.k, exact: map.top >= map.k };
  });
  if (!state.hide || !map.sinks.length) return plain;
  const share = rest(map, found, i);
  const weights = plain.weights.map((w, j) => (hidden(map, j) ? 0 : w / share));
  return { ...plain, weights };
}

// The greatest weights of row i, exact: [[weight, key], …].
async function best(map, i, count = 8) {
  if (data.remote) {
    const { weights } = await row(map, i);
    const order = ranked(Array.from(weights)).filter(([w, j]) => w !== 0 && !hidden(map, j));
    return order.slice(0, count);
  }
  const found = await known(map);
  const share = rest(map, found, i);
  const list = [];
  for (let n = i * map.top; n < (i + 1) * map.top && list.length < count; n++) {
    if (found.values[n] !== 0 && !hidden(map, found.columns[n])) list.push([found.values[n] / share, found.columns[n]]);
  }
  return list;
}

// One weight: {w, sure}: "exact", "near" (from its byte) or "most" (no more than this); and its rank, if it is known.
async function weightAt(map, i, j) {
  if (data.remote) {
    const { weights } = await row(map, i);
    return { w: weights[j], sure: "exact", rank: 1 + weights.reduce((n, w) => n + (w > weights[j]), 0) };
  }
  const found = await known(map);
  const share = rest(map, found, i);
  for (let n = 0, rank = 1; n < map.top; n++) {
    const key = found.columns[i * map.top + n];
    if (key === j) return { w: found.values[i * map.top + n] / share, sure: "exact", rank };
    rank += !hidden(map, key);
  }
  const sink = map.sinks.indexOf(j);
  if (sink >= 0) return { w: found.drained[sink][i] / share, sure: "exact", rank: null };
  const level = map.levels[map.levels.length - 1];
  const [y, x] = [i >> level, j >> level];
  const { cells, width } = await tile(map, level, Math.floor(y / TILE), Math.floor(x / TILE));
  const w = weightOf(map, cells[(y % TILE) * width + (x % TILE)]) / share;
  // a weight outside of the greatest is no greater than the least of them
  const least = map.top ? Math.abs(found.values[(i + 1) * map.top - 1]) / share : Infinity;
  if (level === 0) return { w: map.signed ? w : Math.min(w, least), sure: "near", rank: null };
  return { w: Math.min(Math.abs(w), least), sure: "most", rank: null };
}

const said = { exact: "", near: "about ", most: "at most " };
const spoken = ({ w, sure }) => said[sure] + number(w);
const number = (w) => (w === 0 ? "0" : Math.abs(w) < 0.0001 ? w.toExponential(1) : w.toFixed(4));
