// Colours of bytes. A map has the whole range of colours from zero to its greatest weight.
const fontFamily = getComputedStyle(document.body).fontFamily;

// The position of a weight on the colour ramp, from 0 to 1.
function rampPosition(w) {
  if (state.scale === "linear") return w;
  return state.scale === "sqrt" ? Math.sqrt(w) : w > 0 ? Math.max(0, 1 + Math.log10(w) / 4) : 0;
}
// The colour of a weight as a share of the greatest one.
const rgb = (share, signed) => (signed ? divergingColour(Math.sign(share) * rampPosition(Math.abs(share))) : colour(rampPosition(Math.max(0, share))));

// The greatest weight of a map, at the end of its colours; without its sinks, the greatest of the others as they are drawn.
function greatestWeight(map) {
  const statistics = state.hide && map.sinks.length ? facts.peek(map.n) : null;
  if (!statistics) return map.most || 1;
  statistics.bareMost ??= Array.from({ length: map.q }, (_, i) => {
    const n = Array.from({ length: map.top }, (_, n) => i * map.top + n).find((n) => !map.sinks.includes(statistics.columns[n]));
    return n === undefined ? 0 : statistics.values[n] / remainingShare(map, statistics, i, true);
  }).reduce((a, b) => Math.max(a, b), 0);
  return Math.min(1, statistics.bareMost) || 1;
}
const weightColour = (map, w) => rgb(w / greatestWeight(map), map.signed);

const colourKey = () => `${state.scale}/${dark.matches}`;
const palettes = new Map();
// The colours of the 256 bytes, each as the integer that a canvas stores; the byte of a weight `gain` times the scale of
// its bytes has the last colour.
function palette(signed, gain = 1) {
  const key = `${state.scale}/${signed}/${gain}`;
  if (!palettes.has(key)) {
    const list = new Uint32Array(256);
    for (let b = 0; b < 256; b++) {
      const w = signed ? Math.sign(b - 128) * ((b - 128) / 127) ** 2 : (b / 255) ** 2;
      const [r, g, blue] = rgb(w / gain, signed);
      list[b] = (255 << 24) | (blue << 16) | (g << 8) | r;
    }
    palettes.set(key, list);
    if (palettes.size > 256) palettes.delete(palettes.keys().next().value);
  }
  return palettes.get(key);
}
const mapPalette = (map) => palette(map.signed, greatestWeight(map) / map.scale);

function colourCells(cells, height, width, list) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, width);
  canvas.height = Math.max(1, height);
  if (!width || !height) return canvas;
  const image = new ImageData(width, height);
  const out = new Uint32Array(image.data.buffer);
  for (let n = 0; n < cells.length; n++) out[n] = list[cells[n]];
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

// The greatest of `count` values from `start` on.
function greatest(list, start, count) {
  let most = 0;
  for (let n = start; n < Math.min(list.length, start + count); n++) if (list[n] > most) most = list[n];
  return most;
}

// The bytes of a tile as drawn: with the sinks in their columns, or without them and the other weights renormalised.
async function adjustedTile(map, level, y, x) {
  const hide = state.hide; // the value at the call, not when the tile arrives
  const { cells, height, width, done } = await tile(map, level, y, x);
  const statistics = data.remote ? facts.peek(map.n) : await loadFacts(map);
  if (!map.sinks.length || !statistics) return { cells, height, width, done };
  const out = new Uint8Array(cells);
  const span = 2 ** level;
  for (let r = 0; r < height; r++) {
    const first = (y * TILE + r) * span;
    if (hide) {
      let least = 1;
      for (let i = first; i < Math.min(map.q, first + span); i++) least = Math.min(least, remainingShare(map, statistics, i, hide));
      const gain = Math.sqrt(1 / least);
      for (let n = r * width; n < (r + 1) * width; n++) out[n] = Math.min(255, Math.round(out[n] * gain));
      continue;
    }
    map.sinks.forEach((j, s) => {
      const column = (j >> level) - x * TILE;
      if (column < 0 || column >= width) return;
      const byte = Math.round(255 * Math.sqrt(Math.min(1, greatest(statistics.sinkWeights[s], first, span) / map.scale)));
      out[r * width + column] = Math.max(out[r * width + column], byte);
    });
  }
  return { cells: out, height, width, done };
}

// Tiles of one map, and of the difference of two maps, as canvases.
const plainPainter = {
  stamp: () => `${state.map}/${colourKey()}/${state.hide}/${greatestWeight(currentMap())}/${data.remote && Boolean(facts.peek(state.map))}`,
  levels: () => currentMap().levels,
  paint: async (level, y, x) => {
    const map = currentMap();
    const { cells, height, width, done } = await adjustedTile(map, level, y, x);
    const list = mapPalette(map);
    return { canvas: colourCells(cells, height, width, list), done };
  },
};
const differencePainter = {
  stamp: () => `${state.map}-${state.against}/${colourKey()}/${state.hide}`,
  levels: () => currentMap().levels.filter((level) => maps[state.against].levels.includes(level)),
  paint: async (level, y, x) => {
    const [map, other, list] = [currentMap(), maps[state.against], palette(true)];
    const [a, b] = await Promise.all([adjustedTile(map, level, y, x), adjustedTile(other, level, y, x)]);
    const cells = a.cells.map((byte, n) => {
      const difference = weightOf(map, byte) / map.scale - weightOf(other, b.cells[n]) / map.scale;
      return 128 + Math.round(127 * Math.sign(difference) * Math.sqrt(Math.min(1, Math.abs(difference))));
    });
    return { canvas: colourCells(cells, a.height, a.width, list), done: a.done && b.done };
  },
};

// A canvas of this size in CSS pixels, at the density of the screen.
let density = 1;
function context(canvas, width, height) {
  density = Math.min(devicePixelRatio || 1, 8000 / Math.max(width, height, 1));
  const [w, h] = [Math.max(1, Math.round(width * density)), Math.max(1, Math.round(height * density))];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  Object.assign(canvas.style, { width: width + "px", height: height + "px" });
  const pen = canvas.getContext("2d");
  pen.setTransform(density, 0, 0, density, 0, 0);
  pen.font = `12px ${fontFamily}`;
  return pen;
}
const cssColours = (...names) => {
  const style = getComputedStyle(document.documentElement);
  return names.map((name) => style.getPropertyValue(name).trim());
};

// The legend: the current colour ramp, with the weights of some of its positions.
const ramp = make("canvas", { class: "ramp", "aria-hidden": "true" });
const marks = make("div", { class: "marks" });
const rule = make("span", { class: "rule" });
const maskSample = make("span", { class: "mask-sample" }, "masked");
let legendStamp = "";
function drawLegend() {
  maskSample.hidden = !cachedMask(currentMap());
  const signed = state.tab === "difference" || currentMap().signed;
  const scale = state.tab === "difference" ? currentMap().scale : greatestWeight(currentMap());
  const stamp = `${colourKey()}/${signed}/${scale}`;
  if (stamp === legendStamp) return;
  legendStamp = stamp;
  const pen = context(ramp, 180, 12);
  for (let x = 0; x < 180; x++) {
    const part = signed ? (x / 179) * 2 - 1 : x / 179;
    const w = Math.sign(part) * rampWeight(Math.abs(part));
    pen.fillStyle = `rgb(${rgb(w, signed)})`;
    pen.fillRect(x, 0, 1, 12);
  }
  rule.textContent = signed ? "pale: none, orange: more, violet: less" : COLOUR_RULE;
  const at = signed ? [-1, 0, 1] : [0, 0.25, 0.5, 0.75, 1];
  marks.replaceChildren(...at.map((part) => make("span", {}, mark(Math.sign(part) * rampWeight(Math.abs(part)) * scale, part))));
}
function rampWeight(part) {
  if (state.scale === "linear") return part;
  return state.scale === "sqrt" ? part * part : 10 ** (4 * (part - 1));
}
function mark(w, part) {
  if (state.scale === "log" && part === 0) return "0";
  const text = Math.abs(w) < 0.01 && w ? w.toExponential(0) : String(Number(w.toFixed(3)));
  return text.replace("-", "−");
}
