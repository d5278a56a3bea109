// The spectrogram of a sound, and below it the attention of each letter, with the time in seconds. The caller sets `view`
// and calls `showAlignment()`. State: the cell pointed at.
// letters: one per row; weights: [letter][part of the sound]; frames: [10 ms][band]; seconds: the length of the sound
const view = { letters: [], weights: [], frames: [], seconds: 0 };
const at = { row: 0, column: 0, pointed: false };
const SIZE = { margin: 44, spectrogram: 120, row: 16, axis: 22 }; // pixels

const canvas = make("canvas", { class: "cells" });
const figure = make(
  "div",
  { class: "figure", id: "sound", tabindex: "0", role: "application", "aria-roledescription": "alignment", "aria-label": "the alignment", "aria-describedby": "sound-keys" },
  canvas,
);
const status = make("p", { id: "sound-status", role: "status" });
const grid = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "weights of the letters" });
const tableDetails = make("details", {}, make("summary", {}, "As a table"), grid);
const section = make(
  "section",
  { class: "card", id: "attention", "aria-label": "attention" },
  make("h2", {}, "Attention over the sound"),
  make("p", { class: "hint", id: "sound-keys" }, `Above the energy of the bands, below the attention of each letter; ${COLOUR_RULE}. Point at a cell, or move with the arrow keys.`),
  status, figure, tableDetails,
);
document.getElementById("page").append(section);

// Rows of numbers as cells from the left and the top of a box; the first row is the upper one.
function drawCells(pen, rows, left, top, width, height) {
  const numbers = rows.flat();
  const [low, high] = numbers.reduce(([a, b], w) => [Math.min(a, w), Math.max(b, w)], [0, 0]);
  const edge = (n, count, length) => Math.round((n * length) / count);
  rows.forEach((row, r) =>
    row.forEach((w, c) => {
      pen.fillStyle = `rgb(${colour(high > low ? (w - low) / (high - low) : 0)})`;
      const [x, y] = [edge(c, row.length, width), edge(r, rows.length, height)];
      pen.fillRect(left + x, top + y, edge(c + 1, row.length, width) - x, edge(r + 1, rows.length, height) - y);
    }),
  );
}

function drawCanvas() {
  const { letters, weights, frames, seconds } = view;
  if (!letters.length || !frames.length) return;
  const height = SIZE.row * letters.length;
  const width = Math.max(200, (figure.clientWidth || 600) - SIZE.margin);
  [canvas.width, canvas.height] = [SIZE.margin + width, SIZE.spectrogram + 6 + height + SIZE.axis];
  const pen = canvas.getContext("2d");
  const text = getComputedStyle(document.documentElement).getPropertyValue("--text") || "#222";
  // bands from low, below, to high
  const bands = frames[0].map((_, m) => frames.map((frame) => frame[frame.length - 1 - m]));
  drawCells(pen, bands, SIZE.margin, 0, width, SIZE.spectrogram);
  const top = SIZE.spectrogram + 6;
  drawCells(pen, weights, SIZE.margin, top, width, height);
  Object.assign(pen, { fillStyle: text, font: "12px sans-serif", textAlign: "right", textBaseline: "middle" });
  letters.forEach((letter, n) => pen.fillText(ellipsize(pen, letter, SIZE.margin - 6), SIZE.margin - 6, top + (n + 0.5) * SIZE.row));
  Object.assign(pen, { textAlign: "center", textBaseline: "top" });
  const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20].find((s) => (s / seconds) * width >= 40) ?? 60;
  for (let n = 0; n * step <= seconds; n++) pen.fillText(`${+(n * step).toFixed(1)} s`, SIZE.margin + ((n * step) / seconds) * width, top + height + 4);
  if (!at.pointed) return;
  const cell = width / weights[0].length;
  for (const [thick, paint] of [[4, "#fff"], [2, "#202020"]]) {
    [pen.lineWidth, pen.strokeStyle] = [thick, paint];
    pen.strokeRect(SIZE.margin + at.column * cell + 1, top + at.row * SIZE.row + 1, cell - 2, SIZE.row - 2);
  }
}

// The moment of a part of the sound, in seconds.
const moment = (n) => ((n / view.weights[0].length) * view.seconds).toFixed(2);
function writeStatus() {
  if (!view.letters.length) return (status.textContent = "");
  const row = at.pointed ? at.row : 0;
  const column = at.pointed ? at.column : ranked(view.weights[0])[0][1];
  status.textContent = `'${view.letters[row]}' ${at.pointed ? "at" : "attends most at"} ${moment(column)} s: ${exact(view.weights[row][column])}`;
}
function fillTable() {
  if (!tableDetails.open || !view.letters.length) return;
  const head = make("tr", {}, make("td"), ...view.weights[0].map((_, c) => make("th", { scope: "col" }, `${moment(c)} s`)));
  const rows = view.weights.map((row, r) => make("tr", {}, make("th", { scope: "row" }, view.letters[r]), ...row.map((w) => make("td", {}, exact(w)))));
  grid.replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}
function redraw() {
  drawCanvas();
  writeStatus();
  figure.setAttribute("aria-label", `the alignment; ${status.textContent}`);
}
function showAlignment() {
  at.pointed = false;
  redraw();
  fillTable();
}

function pointAt(row, column) {
  if (!view.letters.length) return;
  const within = (n, count) => Math.min(count - 1, Math.max(0, n));
  Object.assign(at, { row: within(row, view.letters.length), column: within(column, view.weights[0].length), pointed: true });
  redraw();
}
canvas.addEventListener("pointermove", (event) => {
  if (!view.letters.length) return;
  const box = canvas.getBoundingClientRect();
  const [x, y] = [((event.clientX - box.left) / box.width) * canvas.width, ((event.clientY - box.top) / box.height) * canvas.height];
  pointAt(Math.floor((y - SIZE.spectrogram - 6) / SIZE.row), Math.floor(((x - SIZE.margin) / (canvas.width - SIZE.margin)) * view.weights[0].length));
});
figure.addEventListener("keydown", (event) => {
  const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!by) return;
  pointAt(...(at.pointed ? [at.row + by[0], at.column + by[1]] : [0, 0]));
  event.preventDefault();
});
tableDetails.addEventListener("toggle", fillTable);
dark.addEventListener("change", redraw);
addEventListener("resize", drawCanvas);
