// Keys that are patches of an image: the last height × width of them, row by row; earlier keys (a class token) are
// listed in words. The image, if there is one, stands beside the weights, with its contours drawn over them.
const source = data.image ? make("img", { src: data.image, alt: "" }) : null;
source?.addEventListener("load", schedule);
const bare = data.image ? make("img", { src: data.image, class: "bare", alt: "the image as it is" }) : "";
const smooth = make("input", { type: "checkbox", id: "smooth" });
const imageCanvas = make("canvas", { class: "cells" });
const imageFigure = make("div", { class: "figure", tabindex: "0", role: "application", "aria-roledescription": "image", "aria-label": "weights over the image", "aria-describedby": "keys" }, imageCanvas);
const imageNote = make("p", { class: "hint" });
let imageAt = null;

// All heads of the layer for the selected query, side by side; a click selects one.
const headsCanvas = make("canvas", { class: "cells", role: "img", "aria-label": "all heads over the image" });
let headsAt = null;

// The greatest weight that a row gives to a patch.
function greatestPatchWeight(map, weights) {
  let most = 1e-9;
  for (let n = map.k - map.layer.grid[0] * map.layer.grid[1]; n < map.k; n++) most = Math.max(most, Math.abs(weights[n]));
  return most;
}

// The patches of a row as a small canvas; `most` has the strongest colour.
function overlay(map, weights, most) {
  const [rows, columns] = map.layer.grid;
  const before = map.k - rows * columns;
  const cells = new Uint8Array(rows * columns);
  for (let n = 0; n < cells.length; n++) {
    const part = Math.sqrt(Math.min(1, Math.abs(weights[before + n]) / most));
    cells[n] = map.signed ? 128 + Math.round(127 * part * Math.sign(weights[before + n])) : Math.round(255 * part);
  }
  return colourCells(cells, rows, columns, palette(map.signed));
}

const imageLoaded = () => Boolean(source?.complete && source.naturalWidth);
function drawWeights(pen, map, weights, most, x, y, width, height) {
  pen.imageSmoothingEnabled = smooth.checked;
  pen.drawImage(overlay(map, weights, most), x, y, width, height);
  const lines = imageLoaded() ? contours(source, source.naturalWidth, source.naturalHeight) : [];
  // the many contours of a photograph would hide the weights of a small panel
  if (width >= 160 || lines.length <= 600) trace(pen, lines, x, y, width, height);
  if (!isHard(map)) return;
  // the one patch that hard attention read
  const [rows, columns] = map.layer.grid;
  const before = map.k - rows * columns;
  const position = weights.indexOf(Math.max(...weights)) - before;
  [pen.strokeStyle, pen.lineWidth] = [cssColours("--accent")[0], 2];
  if (position >= 0) pen.strokeRect(x + ((position % columns) * width) / columns, y + (Math.floor(position / columns) * height) / rows, width / columns, height / rows);
}
const isHard = (map) => map.layer.how === "regard, hard";

const shapeOf = (map) => (imageLoaded() ? source.naturalHeight / source.naturalWidth : map.layer.grid[0] / map.layer.grid[1]);
function frame(map, figure, canvas) {
  const [rows, columns] = map.layer.grid;
  const width = Math.floor(Math.min(Math.max(200, figure.clientWidth), (innerHeight * 0.66) / shapeOf(map), 640));
  const height = Math.floor(width * shapeOf(map));
  const pen = context(canvas, width, height);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height, cw: width / columns, ch: height / rows, before: map.k - rows * columns };
}

async function drawImage(drawing) {
  const map = currentMap();
  headsCanvas.hidden = map.layer.heads < 2;
  const { q, k } = point();
  const { weights, whole } = await row(map, q);
  const heads = Array.from({ length: headsCanvas.hidden ? 0 : map.layer.heads }, (_, h) => maps[map.layer.first + h]);
  const rows = await Promise.all(heads.map((head) => row(head, q)));
  if (drawing !== drawingNumber) return;
  const panels = heads.map((head, n) => ({ map: head, weights: rows[n].weights, name: `${headWord(map.layer)} ${headName(map.layer, n)}` }));
  if (panels.length) headsAt = drawPanels(headsCanvas, panels, map.head, Math.max(220, imageFigure.parentElement.clientWidth));
  const at = frame(map, imageFigure, imageCanvas);
  const most = greatestPatchWeight(map, weights);
  drawWeights(at.pen, map, weights, most, 0, 0, at.width, at.height);
  const columns = map.layer.grid[1];
  const box = (n, colour, thick) => {
    at.pen.strokeStyle = colour;
    at.pen.lineWidth = thick;
    at.pen.strokeRect((n % columns) * at.cw + 1, Math.floor(n / columns) * at.ch + 1, at.cw - 2, at.ch - 2);
  };
  const [accent, strong] = cssColours("--accent", "--ink");
  if (map.q === map.k && q >= at.before) box(q - at.before, strong, 2);
  if (k >= at.before) box(k - at.before, accent, 3);
  imageAt = { map, ...at, columns };
  const outside = Array.from({ length: Math.min(at.before, 8) }, (_, n) => `${shortLabel(map, "k", n)} ${number(weights[n])}`);
  imageNote.textContent =
    `Dark: none, bright: ${number(most)}, the greatest weight of this query in the image.` +
    (outside.length ? ` Outside of the image: ${outside.join(", ")}.` : "") +
    (isHard(map) ? " Hard attention: the one patch that was read has a frame." : "") +
    (map.q === map.k ? " A click on a patch selects it as the query; it has a frame." : "") +
    (whole ? "" : ` Only the ${map.top} greatest weights of the row are kept.`);
}
headsCanvas.addEventListener("click", (event) => {
  const box = headsCanvas.getBoundingClientRect();
  const n = headsAt ? headsAt(event.clientX - box.left, event.clientY - box.top) : -1;
  if (n >= 0) change({ map: currentMap().layer.first + n });
});
imageCanvas.addEventListener("click", (event) => {
  if (!imageAt) return;
  const box = imageCanvas.getBoundingClientRect();
  const [x, y] = [Math.floor((event.clientX - box.left) / imageAt.cw), Math.floor((event.clientY - box.top) / imageAt.ch)];
  const n = imageAt.before + y * imageAt.columns + x;
  change(imageAt.map.q === imageAt.map.k ? { q: n } : { k: n });
});

// Small overlays with their names below, the selected one in a frame; the strongest colour is the greatest weight of all.
// Returns the panel at a point of the canvas.
function drawPanels(canvas, panels, selected, width) {
  const side = 96;
  const across = Math.max(1, Math.floor(width / (side + 10)));
  const tall = Math.round(side * shapeOf(panels[0].map));
  const height = Math.ceil(panels.length / across) * (tall + 28);
  const pen = context(canvas, width, height);
  pen.clearRect(0, 0, width, height);
  const [soft, accent] = cssColours("--soft", "--accent");
  const most = Math.max(...panels.map(({ map, weights }) => greatestPatchWeight(map, weights)));
  panels.forEach(({ map, weights, name }, n) => {
    const [x, y] = [(n % across) * (side + 10) + 2, Math.floor(n / across) * (tall + 28) + 2];
    drawWeights(pen, map, weights, most, x, y, side, tall);
    if (n === selected) {
      pen.strokeStyle = accent;
      pen.lineWidth = 3;
      pen.strokeRect(x, y, side, tall);
    }
    pen.fillStyle = n === selected ? accent : soft;
    pen.font = `${n === selected ? "600 " : ""}13px ${fontFamily}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(ellipsize(pen, name, side), x + side / 2, y + tall + 12);
  });
  Object.assign(canvas.dataset, { most, panels: panels.map(({ name }) => name).join(", ") });
  return (x, y) => {
    const [column, line] = [Math.floor(x / (side + 10)), Math.floor(y / (tall + 28))];
    const n = line * across + column;
    return column < across && n >= 0 && n < panels.length ? n : -1;
  };
}

// Steps over an image: one small overlay a step, the word below.
async function drawStrip(drawing, now) {
  const width = Math.max(220, stepFigure.clientWidth);
  const count = Math.min(steps.length, Math.max(1, Math.floor(width / 106)) * 4);
  const first = clamp(now - Math.floor(count / 2), 0, steps.length - count);
  const visibleSteps = steps.slice(first, first + count);
  const rows = await Promise.all(visibleSteps.map((step) => row(maps[step.map], step.q)));
  if (drawing !== drawingNumber) return;
  drawPanels(stepCanvas, visibleSteps.map((step, n) => ({ map: maps[step.map], weights: rows[n].weights, name: shortLabel(maps[step.map], "q", step.q) })), now - first, width);
  stepNote.textContent = `Each image is a step; dark: none, bright: ${number(Number(stepCanvas.dataset.most))}, the greatest weight of the steps shown.`;
}

// Glimpses: where each query looked, as a numbered window around what it saw with at least half of its greatest weight.
const glimpseCanvas = make("canvas", { class: "cells" });
const glimpseFigure = make("div", { class: "figure", tabindex: "0", role: "application", "aria-roledescription": "glimpses", "aria-label": "path of glimpses", "aria-describedby": "keys" }, glimpseCanvas);
const glimpseNote = make("p", { class: "hint" });

function windowOf(map, weights) {
  const [rows, columns] = map.layer.grid;
  const before = map.k - rows * columns;
  let most = 0;
  for (let n = before; n < map.k; n++) most = Math.max(most, weights[n]);
  if (!most) return null;
  const box = [Infinity, Infinity, -1, -1];
  for (let n = 0; n < rows * columns; n++) {
    if (weights[before + n] < most / 2) continue;
    const [y, x] = [Math.floor(n / columns), n % columns];
    box.splice(0, 4, Math.min(box[0], y), Math.min(box[1], x), Math.max(box[2], y + 1), Math.max(box[3], x + 1));
  }
  return box;
}

async function drawGlimpses(drawing) {
  const map = currentMap();
  const all = stepsOf(map);
  const now = all.findIndex((step) => step.map === map.n && step.q === point().q);
  const visibleSteps = all.slice(0, 64);
  const rows = await Promise.all(visibleSteps.map((step) => row(maps[step.map], step.q)));
  if (drawing !== drawingNumber) return;
  const at = frame(map, glimpseFigure, glimpseCanvas);
  const { weights } = rows[Math.min(now, visibleSteps.length - 1)];
  if (imageLoaded()) {
    at.pen.imageSmoothingEnabled = source.naturalWidth > at.width;
    at.pen.drawImage(source, 0, 0, at.width, at.height);
  } else drawWeights(at.pen, map, weights, greatestPatchWeight(map, weights), 0, 0, at.width, at.height);
  const [accent] = cssColours("--accent");
  const [strong, card] = ["#1a2130", "#fff"]; // on a picture, which is the same by day and by night
  const boxes = rows.map(({ weights }, n) => windowOf(maps[visibleSteps[n].map], weights));
  const middle = (box) => [((box[1] + box[3]) / 2) * at.cw, ((box[0] + box[2]) / 2) * at.ch];
  at.pen.beginPath();
  boxes.filter(Boolean).forEach((box, n) => (n ? at.pen.lineTo(...middle(box)) : at.pen.moveTo(...middle(box))));
  const rimmed = (thick, paint, stroke) => {
    for (const [more, colour] of [[2.5, card], [0, paint]]) {
      [at.pen.lineWidth, at.pen.strokeStyle] = [thick + more, colour];
      stroke();
    }
  };
  rimmed(1.5, strong, () => at.pen.stroke());
  boxes.forEach((box, n) => {
    if (box) rimmed(n === now ? 3 : 1.25, n === now ? accent : strong, () => at.pen.strokeRect(box[1] * at.cw, box[0] * at.ch, (box[3] - box[1]) * at.cw, (box[2] - box[0]) * at.ch));
  });
  at.pen.textAlign = "center";
  at.pen.textBaseline = "middle";
  at.pen.font = `600 12px ${fontFamily}`;
  const spots = [];
  boxes.forEach((box, n) => {
    if (!box) return;
    // at its middle, or as near as no other number is
    let [x, y] = middle(box);
    while (spots.some(([a, b]) => Math.hypot(a - x, b - y) < 20)) [x, y] = x + 31 < at.width ? [x + 21, y] : [middle(box)[0] % 21, y + 21];
    spots.push([x, y]);
    at.pen.fillStyle = n === now ? accent : strong;
    at.pen.beginPath();
    at.pen.arc(x, y, 10, 0, 2 * Math.PI);
    at.pen.fill();
    at.pen.fillStyle = card;
    at.pen.fillText(String(n), x, y + 0.5);
  });
  glimpseCanvas.dataset.windows = JSON.stringify(boxes);
  glimpseCanvas.dataset.numbers = JSON.stringify(spots);
  glimpseNote.textContent = `${boxes.filter(Boolean).length} glimpses in their order, from 0; arrow up and down step through them.` + (all.length > visibleSteps.length ? ` The first ${visibleSteps.length} of ${all.length} are drawn.` : "");
}
imageFigure.addEventListener("keydown", (event) => moveByKey(event) && event.preventDefault());
glimpseFigure.addEventListener("keydown", moveByStep);
smooth.addEventListener("input", schedule);
