// An image and the attention of a model over its patches: a grid of weights, one or several steps, with the contours of
// the image. The caller sets `view` and calls `showStep(0, 0)`. State: the map, the step, and the patch pointed at.
// words: one per step; path: {x, y} of glimpses, from 0 to 1; maps: {name, kind, verified, weights: [step][row][column]}
const view = { picture: null, words: [], path: [], maps: [] };
const MAX_SIDE = 448; // pixels of the longer side, at most
const MIN_SIDE = 200; // and at least, where two stand beside each other
const at = { map: 0, step: 0, row: 0, column: 0, pointed: false };

const canvas = make("canvas", { class: "cells" });
const figure = make(
  "div",
  { class: "figure", id: "overlay", tabindex: "0", role: "application", "aria-roledescription": "image", "aria-label": "the image", "aria-describedby": "overlay-keys" },
  canvas,
);
// the image itself, beside the weights
const bare = make("canvas", { class: "cells", role: "img", "aria-label": "the image without weights" });
const canvasPair = make("div", { class: "pair" }, bare, figure);
const chooser = make("select", { id: "chooser" });
const stepper = make("input", { id: "stepper", type: "range", min: "0", value: "0" });
const coverToggle = make("input", { id: "cover", type: "checkbox" });
coverToggle.checked = true;
const scaleRamp = make("canvas", { class: "ramp", width: 120, height: 10, "aria-hidden": "true" });
const [lowest, highest] = [make("span"), make("span")];
const choice = make("div", { class: "choice" }, make("label", { for: "chooser" }, "Module"), chooser);
const stepChoice = make("div", { class: "choice" }, make("label", { for: "stepper" }, "Step"), stepper);
const legend = make("div", { class: "legend" }, lowest, scaleRamp, highest, make("span", {}, COLOUR_RULE), make("label", { for: "cover" }, coverToggle, " show the attention"));
const status = make("p", { id: "overlay-status", role: "status" });
const grid = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "weights of the patches" });
const tableDetails = make("details", {}, make("summary", {}, "As a table"), grid);
const section = make(
  "section",
  { class: "card", id: "attention", "aria-label": "attention" },
  make("h2", {}, "Attention"),
  choice, stepChoice, legend, status, canvasPair,
  make("p", { class: "hint", id: "overlay-keys" }, "Point at a patch, or move with the arrow keys."),
  tableDetails,
);
document.getElementById("page").append(section);

const currentMap = () => view.maps[at.map];
const currentCells = () => currentMap()?.weights[at.step];
// The range of the colours: from 0 to the greatest weight of all steps of a map. All weights of a gate may lie near one:
// the range begins at the least, so that they differ visibly.
function bounds(map) {
  let [low, high] = [Infinity, -Infinity];
  for (const step of map.weights) for (const row of step) for (const w of row) [low, high] = [Math.min(low, w), Math.max(high, w)];
  return [map.kind === "gate" ? low : Math.min(0, low), high];
}
const stepName = (n) => (view.words[n] === undefined ? `step ${n + 1}` : `'${view.words[n]}'`);

function drawCanvas() {
  const cells = coverToggle.checked ? currentCells() : null;
  const [rows, columns] = cells ? [cells.length, cells[0].length] : [1, 1];
  const [wide, high] = view.picture ? [view.picture.width, view.picture.height] : [columns, rows];
  bare.hidden = !view.picture || !cells;
  const [room, half] = [canvasPair.clientWidth || MAX_SIDE, (canvasPair.clientWidth - 16) / 2];
  const size = Math.min(MAX_SIDE, bare.hidden || half < MIN_SIDE ? room : half) / Math.max(wide, high);
  const pens = [bare, canvas].map((canvas) => {
    [canvas.width, canvas.height] = [Math.max(1, Math.round(wide * size)), Math.max(1, Math.round(high * size))];
    return canvas.getContext("2d");
  });
  for (const pen of !view.picture ? [] : cells ? [pens[0]] : pens) {
    // transparent pixels are white, as in the input of the model
    pen.fillStyle = "#fff";
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.imageSmoothingEnabled = size < 1;
    pen.drawImage(view.picture, 0, 0, canvas.width, canvas.height);
  }
  if (!cells) return;
  const pen = pens[1];
  const [low, high_] = bounds(currentMap());
  const edge = (n, count, length) => Math.round((n * length) / count);
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < columns; c++) {
      pen.fillStyle = `rgb(${colour(high_ > low ? (cells[r][c] - low) / (high_ - low) : 0)})`;
      const [x, y] = [edge(c, columns, canvas.width), edge(r, rows, canvas.height)];
      pen.fillRect(x, y, edge(c + 1, columns, canvas.width) - x, edge(r + 1, rows, canvas.height) - y);
    }
  if (view.picture) trace(pen, contours(view.picture, wide, high), 0, 0, canvas.width, canvas.height);
  const accent = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  drawPath(pen, accent);
  if (!at.pointed) return;
  const [x, y] = [edge(at.column, columns, canvas.width), edge(at.row, rows, canvas.height)];
  for (const [thick, paint] of [[4, "#fff"], [2, accent]]) {
    [pen.lineWidth, pen.strokeStyle] = [thick, paint];
    pen.strokeRect(x + 1, y + 1, edge(at.column + 1, columns, canvas.width) - x - 2, edge(at.row + 1, rows, canvas.height) - y - 2);
  }
}

// The path of the glimpses, with a light rim that is visible on any background; the current glimpse is filled.
function drawPath(pen, accent) {
  const points = view.path.map(({ x, y }) => [x * canvas.width, y * canvas.height]);
  for (const [thick, paint] of [[4, "#fff"], [2, accent]]) {
    [pen.lineWidth, pen.strokeStyle, pen.fillStyle] = [thick, paint, paint];
    pen.beginPath();
    for (const [x, y] of points) pen.lineTo(x, y);
    pen.stroke();
    points.forEach(([x, y], n) => {
      pen.beginPath();
      pen.arc(x, y, 5, 0, 2 * Math.PI);
      pen.stroke();
      if (n === at.step) pen.fill();
    });
  }
}

function drawScale() {
  const pen = scaleRamp.getContext("2d");
  for (let x = 0; x < scaleRamp.width; x++) {
    pen.fillStyle = `rgb(${colour(x / (scaleRamp.width - 1))})`;
    pen.fillRect(x, 0, 1, scaleRamp.height);
  }
  const [low, high] = bounds(currentMap());
  [lowest.textContent, highest.textContent] = [exact(low), exact(high)];
}

function writeStatus() {
  const cells = currentCells();
  if (!cells) return;
  const several = currentMap().weights.length > 1 ? `At ${stepName(at.step)}: ` : "";
  const sure = currentMap().verified ? "" : " (unverified)";
  if (at.pointed) {
    status.textContent = `${several}row ${at.row + 1} of ${cells.length}, column ${at.column + 1} of ${cells[0].length}: ${exact(cells[at.row][at.column])}${sure}`;
    return;
  }
  const [best] = ranked(cells.flat());
  const [row, column] = [Math.floor(best[1] / cells[0].length), best[1] % cells[0].length];
  status.textContent = `${several}greatest at row ${row + 1} of ${cells.length}, column ${column + 1} of ${cells[0].length}: ${exact(best[0])}${sure}`;
}

function fillTable() {
  const cells = currentCells();
  if (!tableDetails.open || !cells) return;
  const head = make("tr", {}, make("td"), ...cells[0].map((_, c) => make("th", { scope: "col" }, String(c + 1))));
  const rows = cells.map((row, r) => make("tr", {}, make("th", { scope: "row" }, String(r + 1)), ...row.map((w) => make("td", {}, exact(w)))));
  grid.replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}

// Shows one step of a map.
function showStep(map, n) {
  at.map = map;
  const count = currentMap()?.weights.length ?? 0;
  at.step = Math.min(n, Math.max(0, count - 1));
  at.pointed = at.pointed && Boolean(currentCells()) && at.row < currentCells().length && at.column < currentCells()[0].length;
  chooser.replaceChildren(...view.maps.map((map, m) => make("option", { value: m }, `${map.name} (${map.kind})${map.verified ? "" : ", unverified"}`)));
  chooser.value = String(map);
  choice.hidden = view.maps.length < 2;
  stepChoice.hidden = count < 2;
  stepper.max = String(Math.max(0, count - 1));
  stepper.value = String(at.step);
  stepper.setAttribute("aria-valuetext", stepName(at.step));
  legend.hidden = tableDetails.hidden = !count;
  if (count) drawScale();
  redraw();
}
function redraw() {
  drawCanvas();
  writeStatus();
  fillTable();
  figure.setAttribute("aria-label", currentCells() ? `the image, and the attention of ${currentMap().name}; ${status.textContent}` : "the image");
}

function pointAt(row, column) {
  const cells = currentCells();
  if (!cells) return;
  const within = (n, count) => Math.min(count - 1, Math.max(0, n));
  Object.assign(at, { row: within(row, cells.length), column: within(column, cells[0].length), pointed: true });
  redraw();
}
canvas.addEventListener("pointermove", (event) => {
  const cells = currentCells();
  const box = canvas.getBoundingClientRect();
  if (cells) pointAt(Math.floor(((event.clientY - box.top) / box.height) * cells.length), Math.floor(((event.clientX - box.left) / box.width) * cells[0].length));
});
figure.addEventListener("keydown", (event) => {
  const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!by) return;
  pointAt(...(at.pointed ? [at.row + by[0], at.column + by[1]] : [0, 0]));
  event.preventDefault();
});
chooser.addEventListener("change", () => showStep(Number(chooser.value), at.step));
stepper.addEventListener("input", () => showStep(at.map, Number(stepper.value)));
coverToggle.addEventListener("change", redraw);
tableDetails.addEventListener("toggle", fillTable);
dark.addEventListener("change", () => view.maps.length && showStep(at.map, at.step));
addEventListener("resize", drawCanvas);
