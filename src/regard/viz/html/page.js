// What every view of a page needs: its data, colours, elements, numbers. page.py puts it before the view's own script,
// both inside one strict function. Plain ES2022, nothing fetched.
const data = JSON.parse(document.getElementById("data").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");

let emphasis = false; // small weights are brought out

// Cividis, the end of no weight drawn into the paper: lightness runs one way, so it reads without colour too.
const RAMPS = {
  light: [[0, 247, 246, 241], [0.15, 228, 221, 190], [0.35, 194, 183, 132], [0.6, 125, 124, 120], [0.8, 67, 78, 108], [1, 0, 34, 78]],
  dark: [[0, 24, 31, 43], [0.15, 20, 48, 96], [0.4, 76, 86, 110], [0.6, 125, 124, 120], [0.8, 188, 174, 108], [1, 254, 232, 56]],
};

function colour(weight) {
  const ramp = dark.matches ? RAMPS.dark : RAMPS.light;
  const shown = emphasis ? Math.sqrt(weight) : weight;
  let n = 1;
  while (n < ramp.length - 1 && ramp[n][0] < shown) n++;
  const [low, high] = [ramp[n - 1], ramp[n]];
  const part = (shown - low[0]) / (high[0] - low[0]);
  return [1, 2, 3].map((c) => Math.round(low[c] + (high[c] - low[c]) * part));
}

// Black or white, whichever stands out more: at least 4.5 to 1 on any colour.
function ink(rgb) {
  const [r, g, b] = rgb.map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return (light + 0.05) / 0.05 > 1.05 / (light + 0.05) ? "#000" : "#fff";
}

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const label = (piece) => (Object.hasOwn(data.shown, piece) ? data.shown[piece] : piece);
const fixed = (weight) => weight.toFixed(2);
const exact = (weight) => (weight === 0 ? "0" : weight < 0.0001 ? weight.toExponential(1) : weight.toFixed(4));
// A piece in running text: in its own direction, in no known language.
const quoted = (piece) => ["'", make("bdi", { lang: "" }, label(piece)), "'"];

function decoded(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let n = 0; n < raw.length; n++) bytes[n] = raw.charCodeAt(n);
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: raw.length / 4 }, (_, n) => view.getFloat32(4 * n, true));
}

const largest = (list) => list.reduce((a, b) => Math.max(a, b), 0);
const ranked = (list) => list.map((w, n) => [w, n]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);

// A picture as lines over a map, whose colours so stay its own: around what has more red, green or blue than the middle of
// what there is, as outline.py has it; on white, where one sees through. [[x, y, x, y], …], from 0 to 1.
const OUTLINE = { side: 64, least: 25.5, strokes: [[2.5, "#fff"], [1, "#202020"]] };
const outlines = new WeakMap();
function outline(picture, width, height) {
  if (outlines.has(picture)) return outlines.get(picture);
  const times = Math.max(1, Math.max(width, height) / OUTLINE.side);
  const [wide, high] = [Math.max(1, Math.round(width / times)), Math.max(1, Math.round(height / times))];
  const pen = Object.assign(document.createElement("canvas"), { width: wide, height: high }).getContext("2d");
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, wide, high);
  pen.imageSmoothingQuality = "high";
  pen.drawImage(picture, 0, 0, wide, high);
  const pixels = pen.getImageData(0, 0, wide, high).data;
  const middles = [0, 1, 2].map((c) => {
    let [low, most] = [255, 0];
    for (let n = c; n < pixels.length; n += 4) [low, most] = [Math.min(low, pixels[n]), Math.max(most, pixels[n])];
    return most - low < OUTLINE.least ? 256 : (low + most) / 2;
  });
  const differ = (a, b) => middles.some((middle, c) => pixels[4 * a + c] > middle !== pixels[4 * b + c] > middle);
  const lines = [];
  for (let y = 0; y < high; y++)
    for (let x = 0; x < wide; x++) {
      const [n, right, below] = [y * wide + x, (x + 1) / wide, (y + 1) / high];
      if (x + 1 < wide && differ(n, n + 1)) lines.push([right, y / high, right, below]);
      if (y + 1 < high && differ(n, n + wide)) lines.push([x / wide, below, right, below]);
    }
  outlines.set(picture, lines);
  return lines;
}
// A light rim under a dark line: one of them is seen on any colour.
function trace(pen, lines, x, y, width, height) {
  pen.beginPath();
  for (const [x0, y0, x1, y1] of lines) {
    pen.moveTo(x + x0 * width, y + y0 * height);
    pen.lineTo(x + x1 * width, y + y1 * height);
  }
  pen.lineCap = "round";
  for (const [thick, paint] of OUTLINE.strokes) {
    [pen.lineWidth, pen.strokeStyle] = [thick, paint];
    pen.stroke();
  }
}

// The text on a canvas, with an ellipsis where it is wider than allowed.
function cut(pen, text, most) {
  if (pen.measureText(text).width <= most) return text;
  const letters = [...text];
  while (letters.length > 1 && pen.measureText(letters.join("") + "…").width > most) letters.pop();
  return letters.join("") + "…";
}
