// A picture and where a model looked: beside it a grid of weights, one look or one a step, with its outlines. Whoever draws sets
// `seen` and calls `look(0, 0)`. State: which map, which of its looks, and which place is pointed at.
// words: one a look; path: {x, y} of glimpses, from 0 to 1; maps: {name, kind, verified, weights: [look][row][column]}
const seen = { picture: null, words: [], path: [], maps: [] };
const WIDE = 448; // pixels of the longer side, at most
const NARROW = 200; // and at least, where two stand beside each other
const at = { map: 0, look: 0, row: 0, column: 0, pointed: false };

const sheet = make("canvas", { class: "cells" });
const board = make(
  "div",
  { class: "figure", id: "board", tabindex: "0", role: "application", "aria-roledescription": "picture", "aria-label": "the picture", "aria-describedby": "board-keys" },
  sheet,
);
// the picture as it is, beside the weights
const bare = make("canvas", { class: "cells", role: "img", "aria-label": "the picture as it is" });
const pair = make("div", { class: "pair" }, bare, board);
const chooser = make("select", { id: "chooser" });
const stepper = make("input", { id: "stepper", type: "range", min: "0", value: "0" });
const covering = make("input", { id: "covering", type: "checkbox" });
covering.checked = true;
const scaleRamp = make("canvas", { class: "ramp", width: 120, height: 10, "aria-hidden": "true" });
const [lowest, highest] = [make("span"), make("span")];
const choice = make("div", { class: "choice" }, make("label", { for: "chooser" }, "Module"), chooser);
const stepChoice = make("div", { class: "choice" }, make("label", { for: "stepper" }, "Look"), stepper);
const legend = make("div", { class: "legend" }, lowest, scaleRamp, highest, make("label", { for: "covering" }, covering, " show where it looked"));
const told = make("p", { id: "told", role: "status" });
const grid = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "weights, place by place" });
const twin = make("details", {}, make("summary", {}, "As a table"), grid);
const places = make(
  "section",
  { class: "card", id: "places", "aria-label": "where it looked" },
  make("h2", {}, "Where it looked"),
  choice, stepChoice, legend, told, pair,
  make("p", { class: "hint", id: "board-keys" }, "Point at a place, or walk with the arrow keys."),
  twin,
);
document.getElementById("page").append(places);

const mapNow = () => seen.maps[at.map];
const cellsNow = () => mapNow()?.weights[at.look];
// The least and the greatest weight of all looks of a map: what its colours run between. A distribution runs from 0.
function bounds(map) {
  let [low, high] = [Infinity, -Infinity];
  for (const look of map.weights) for (const row of look) for (const w of row) [low, high] = [Math.min(low, w), Math.max(high, w)];
  return [map.weights.length > 1 ? Math.min(0, low) : low, high];
}
const lookName = (n) => (seen.words[n] === undefined ? `look ${n + 1}` : `'${seen.words[n]}'`);

function drawSheet() {
  const cells = covering.checked ? cellsNow() : null;
  const [rows, columns] = cells ? [cells.length, cells[0].length] : [1, 1];
  const [wide, high] = seen.picture ? [seen.picture.width, seen.picture.height] : [columns, rows];
  bare.hidden = !seen.picture || !cells;
  const [room, half] = [pair.clientWidth || WIDE, (pair.clientWidth - 16) / 2];
  const size = Math.min(WIDE, bare.hidden || half < NARROW ? room : half) / Math.max(wide, high);
  const pens = [bare, sheet].map((canvas) => {
    [canvas.width, canvas.height] = [Math.max(1, Math.round(wide * size)), Math.max(1, Math.round(high * size))];
    return canvas.getContext("2d");
  });
  for (const one of !seen.picture ? [] : cells ? [pens[0]] : pens) {
    // on white, as the model sees it where one sees through it
    one.fillStyle = "#fff";
    one.fillRect(0, 0, sheet.width, sheet.height);
    one.imageSmoothingEnabled = size < 1;
    one.drawImage(seen.picture, 0, 0, sheet.width, sheet.height);
  }
  if (!cells) return;
  const pen = pens[1];
  const [low, high_] = bounds(mapNow());
  const edge = (n, count, length) => Math.round((n * length) / count);
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < columns; c++) {
      pen.fillStyle = `rgb(${colour(high_ > low ? (cells[r][c] - low) / (high_ - low) : 0)})`;
      const [x, y] = [edge(c, columns, sheet.width), edge(r, rows, sheet.height)];
      pen.fillRect(x, y, edge(c + 1, columns, sheet.width) - x, edge(r + 1, rows, sheet.height) - y);
    }
  if (seen.picture) trace(pen, outline(seen.picture, wide, high), 0, 0, sheet.width, sheet.height);
  const accent = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  drawPath(pen, accent);
  if (!at.pointed) return;
  const [x, y] = [edge(at.column, columns, sheet.width), edge(at.row, rows, sheet.height)];
  for (const [thick, paint] of [[4, "#fff"], [2, accent]]) {
    [pen.lineWidth, pen.strokeStyle] = [thick, paint];
    pen.strokeRect(x + 1, y + 1, edge(at.column + 1, columns, sheet.width) - x - 2, edge(at.row + 1, rows, sheet.height) - y - 2);
  }
}

// From glimpse to glimpse: a light rim under the line, so that it is seen on any ground; the one that is shown is full.
function drawPath(pen, accent) {
  const places = seen.path.map(({ x, y }) => [x * sheet.width, y * sheet.height]);
  for (const [thick, paint] of [[4, "#fff"], [2, accent]]) {
    [pen.lineWidth, pen.strokeStyle, pen.fillStyle] = [thick, paint, paint];
    pen.beginPath();
    for (const [x, y] of places) pen.lineTo(x, y);
    pen.stroke();
    places.forEach(([x, y], n) => {
      pen.beginPath();
      pen.arc(x, y, 5, 0, 2 * Math.PI);
      pen.stroke();
      if (n === at.look) pen.fill();
    });
  }
}

function drawScale() {
  const pen = scaleRamp.getContext("2d");
  for (let x = 0; x < scaleRamp.width; x++) {
    pen.fillStyle = `rgb(${colour(x / (scaleRamp.width - 1))})`;
    pen.fillRect(x, 0, 1, scaleRamp.height);
  }
  const [low, high] = bounds(mapNow());
  [lowest.textContent, highest.textContent] = [exact(low), exact(high)];
}

function say() {
  const cells = cellsNow();
  if (!cells) return;
  const several = mapNow().weights.length > 1 ? `At ${lookName(at.look)}: ` : "";
  const sure = mapNow().verified ? "" : " (unverified)";
  if (at.pointed) {
    told.textContent = `${several}row ${at.row + 1} of ${cells.length}, column ${at.column + 1} of ${cells[0].length}: ${exact(cells[at.row][at.column])}${sure}`;
    return;
  }
  const [best] = ranked(cells.flat());
  const [row, column] = [Math.floor(best[1] / cells[0].length), best[1] % cells[0].length];
  told.textContent = `${several}most at row ${row + 1} of ${cells.length}, column ${column + 1} of ${cells[0].length}: ${exact(best[0])}${sure}`;
}

function fillTwin() {
  const cells = cellsNow();
  if (!twin.open || !cells) return;
  const head = make("tr", {}, make("td"), ...cells[0].map((_, c) => make("th", { scope: "col" }, String(c + 1))));
  const rows = cells.map((row, r) => make("tr", {}, make("th", { scope: "row" }, String(r + 1)), ...row.map((w) => make("td", {}, exact(w)))));
  grid.replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}

// Shows a map and one of its looks; maps that were there before are chosen again by their name.
function look(map, n) {
  at.map = map;
  const count = mapNow()?.weights.length ?? 0;
  at.look = Math.min(n, Math.max(0, count - 1));
  at.pointed = at.pointed && Boolean(cellsNow()) && at.row < cellsNow().length && at.column < cellsNow()[0].length;
  chooser.replaceChildren(...seen.maps.map((one, m) => make("option", { value: m }, `${one.name} (${one.kind})${one.verified ? "" : ", unverified"}`)));
  chooser.value = String(map);
  choice.hidden = seen.maps.length < 2;
  stepChoice.hidden = count < 2;
  stepper.max = String(Math.max(0, count - 1));
  stepper.value = String(at.look);
  stepper.setAttribute("aria-valuetext", lookName(at.look));
  legend.hidden = twin.hidden = !count;
  if (count) drawScale();
  redraw();
}
function redraw() {
  drawSheet();
  say();
  fillTwin();
  board.setAttribute("aria-label", cellsNow() ? `the picture, and where ${mapNow().name} looked; ${told.textContent}` : "the picture");
}

function pointAt(row, column) {
  const cells = cellsNow();
  if (!cells) return;
  const within = (n, count) => Math.min(count - 1, Math.max(0, n));
  Object.assign(at, { row: within(row, cells.length), column: within(column, cells[0].length), pointed: true });
  redraw();
}
sheet.addEventListener("pointermove", (event) => {
  const cells = cellsNow();
  const box = sheet.getBoundingClientRect();
  if (cells) pointAt(Math.floor(((event.clientY - box.top) / box.height) * cells.length), Math.floor(((event.clientX - box.left) / box.width) * cells[0].length));
});
board.addEventListener("keydown", (event) => {
  const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!by) return;
  pointAt(...(at.pointed ? [at.row + by[0], at.column + by[1]] : [0, 0]));
  event.preventDefault();
});
chooser.addEventListener("change", () => look(Number(chooser.value), at.look));
stepper.addEventListener("input", () => look(at.map, Number(stepper.value)));
covering.addEventListener("change", redraw);
twin.addEventListener("toggle", fillTwin);
dark.addEventListener("change", () => seen.maps.length && look(at.map, at.look));
addEventListener("resize", drawSheet);
