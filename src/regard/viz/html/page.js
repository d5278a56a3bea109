// Shared by all pages: the data, colours, elements and numbers. page.py puts it before the script of the view, both
// inside one strict function. Plain ES2022, nothing fetched.
const data = JSON.parse(document.getElementById("data").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");

let emphasis = false; // colours follow the square root, so that small weights are visible

// The colours of the figures, by day and by night: matplotlib's cividis for weights, dark for none and bright for the
// greatest, and its PuOr_r for signed values, at each sixteenth. Lightness is monotonic in the first and symmetric in the
// second, so both are readable without colour.
const CIVIDIS = [
  [0, 34, 78], [0, 46, 106], [26, 56, 111], [50, 67, 109], [67, 78, 108], [83, 90, 109], [97, 101, 111], [111, 112, 115], [125, 124, 120],
  [140, 136, 120], [155, 148, 118], [171, 160, 114], [188, 174, 108], [205, 187, 99], [222, 201, 88], [240, 216, 70], [254, 232, 56],
];
const DIVERGING = [
  [45, 0, 75], [69, 24, 113], [95, 58, 145], [123, 106, 168], [153, 144, 191], [183, 177, 213], [207, 207, 229], [228, 229, 240], [247, 247, 246],
  [252, 232, 205], [254, 213, 159], [253, 188, 107], [238, 155, 57], [217, 123, 18], [189, 97, 9], [158, 76, 7], [127, 59, 8],
];
const COLOUR_RULE = "dark: none, bright: the greatest";

// The colour at a part of a ramp, from 0 to 1.
function rampColour(ramp, part) {
  const at = Math.min(1, Math.max(0, part)) * (ramp.length - 1);
  const low = Math.min(Math.floor(at), ramp.length - 2);
  return [0, 1, 2].map((c) => Math.round(ramp[low][c] + (ramp[low + 1][c] - ramp[low][c]) * (at - low)));
}
// The colour of a weight as a share of the greatest one that is drawn; of a signed one, from −1 to 1.
const colour = (share) => rampColour(CIVIDIS, emphasis ? Math.sqrt(Math.max(0, share)) : share);
const divergingColour = (share) => rampColour(DIVERGING, (share + 1) / 2);

// Black or white, whichever contrasts more: at least 4.5 to 1 on any colour.
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

const label = (token) => (Object.hasOwn(data.shown, token) ? data.shown[token] : token);
const fixed = (weight) => weight.toFixed(2);
const exact = (weight) => (weight === 0 ? "0" : weight < 0.0001 ? weight.toExponential(1) : weight.toFixed(4));
// A token in running text: in its own direction, in no known language.
const quoted = (token) => ["'", make("bdi", { lang: "" }, label(token)), "'"];

function decodeFloats(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let n = 0; n < raw.length; n++) bytes[n] = raw.charCodeAt(n);
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: raw.length / 4 }, (_, n) => view.getFloat32(4 * n, true));
}

const largest = (list) => list.reduce((a, b) => Math.max(a, b), 0);
const ranked = (list) => list.map((w, n) => [w, n]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);

// The contours of an image as lines over a map, so that the colours stay those of the map: around pixels whose red,
// green or blue lies above the middle of its range, as in contours.py; transparent pixels are white. [[x, y, x, y], …]
// from 0 to 1.
const CONTOURS = { side: 64, least: 25.5, strokes: [[2.5, "#fff"], [1, "#202020"]] };
const contourCache = new WeakMap();
function contours(picture, width, height) {
  if (contourCache.has(picture)) return contourCache.get(picture);
  const times = Math.max(1, Math.max(width, height) / CONTOURS.side);
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
    return most - low < CONTOURS.least ? 256 : (low + most) / 2;
  });
  const differ = (a, b) => middles.some((middle, c) => pixels[4 * a + c] > middle !== pixels[4 * b + c] > middle);
  const lines = [];
  for (let y = 0; y < high; y++)
    for (let x = 0; x < wide; x++) {
      const [n, right, below] = [y * wide + x, (x + 1) / wide, (y + 1) / high];
      if (x + 1 < wide && differ(n, n + 1)) lines.push([right, y / high, right, below]);
      if (y + 1 < high && differ(n, n + wide)) lines.push([x / wide, below, right, below]);
    }
  contourCache.set(picture, lines);
  return lines;
}
// A light rim under a dark line: one of them is visible on any colour.
function trace(pen, lines, x, y, width, height) {
  pen.beginPath();
  for (const [x0, y0, x1, y1] of lines) {
    pen.moveTo(x + x0 * width, y + y0 * height);
    pen.lineTo(x + x1 * width, y + y1 * height);
  }
  pen.lineCap = "round";
  for (const [thick, paint] of CONTOURS.strokes) {
    [pen.lineWidth, pen.strokeStyle] = [thick, paint];
    pen.stroke();
  }
}

// The text on a canvas, cut in its first half where it is wider than allowed: the end, such as the tag of a word, stays.
function ellipsize(pen, text, most) {
  if (pen.measureText(text).width <= most) return text;
  const letters = [...text];
  let [start, end] = [letters.length, letters.length];
  const cut = () => letters.slice(0, start).join("") + "…" + letters.slice(end).join("");
  while (start > 1 && pen.measureText(letters.slice(0, start).join("") + "…").width > most / 3) start--;
  while (end > start && pen.measureText(cut()).width <= most) end--;
  end = Math.min(end + 1, letters.length);
  return cut();
}
