// Lines from queries on the left to keys on the right, as thick as the weight: only the greatest weights of each row,
// only those above the threshold, at most 2,000; the others are counted.
const MAX_LINES = 2000;
const LINE = 19; // pixels from one token to the next
const linesCanvas = make("canvas", { class: "cells" });
const linesFigure = make("div", { class: "figure", tabindex: "0", role: "application", "aria-roledescription": "lines", "aria-label": "lines from queries to keys", "aria-describedby": "keys" }, linesCanvas);
const threshold = make("input", { type: "range", id: "threshold", min: "0", max: "0.5", step: "0.01", value: "0.05" });
const thresholdOutput = make("output", { for: "threshold" }, "0.05");
const linesNote = make("p", { class: "hint" });
let linesAt = null;

async function drawLines(drawing) {
  const map = currentMap();
  const least = Number(threshold.value);
  thresholdOutput.textContent = least.toFixed(2);
  const room = clamp(Math.floor((innerHeight * 0.7) / LINE), 12, 40);
  const [rows, columns] = [Math.min(map.q, room), Math.min(map.k, room)];
  const { q, k } = point();
  // the visible tokens follow the cursor, and stay while it is among them
  const from = (old, at, count, all) => clamp(old !== null && at >= old && at < old + count ? old : at - Math.floor(count / 2), 0, all - count);
  const same = linesAt && linesAt.map === map;
  const [y, x] = [from(same ? linesAt.y : null, q, rows, map.q), from(same ? linesAt.x : null, k, columns, map.k)];
  const lists = await Promise.all(Array.from({ length: rows }, (_, r) => greatestWeights(map, y + r, 20)));
  if (drawing !== drawingNumber) return;
  linesAt = { map, y, x, rows, columns };
  const edges = [];
  let outside = 0;
  lists.forEach((list, r) => {
    for (const [w, j] of list) {
      if (Math.abs(w) < Math.max(least, 1e-6)) continue;
      if (j < x || j >= x + columns) outside++;
      else edges.push([Math.abs(w), r, j - x]);
    }
  });
  edges.sort((a, b) => a[0] - b[0]);
  const drawn = edges.slice(-MAX_LINES);
  const width = Math.max(220, linesFigure.clientWidth);
  const height = Math.max(rows, columns) * LINE + 16;
  const pen = context(linesCanvas, width, height);
  pen.clearRect(0, 0, width, height);
  const [strong, soft, accent, line] = cssColours("--ink", "--soft", "--accent", "--line-strong");
  const label = Math.min(150, width * 0.3);
  const [from0, to0] = [label, width - label];
  const ends = (r, c) => [8 + (r + 0.5) * LINE, 8 + (c + 0.5) * LINE];
  const stroke = (r, c, w, colour, alpha) => {
    const [a, b] = ends(r, c);
    pen.strokeStyle = colour;
    pen.globalAlpha = alpha;
    pen.lineWidth = 0.75 + 7 * w;
    pen.beginPath();
    pen.moveTo(from0, a);
    pen.bezierCurveTo((from0 + to0) / 2, a, (from0 + to0) / 2, b, to0, b);
    pen.stroke();
  };
  for (const [w, r, c] of drawn) if (y + r !== q) stroke(r, c, Math.min(1, w), line, 0.25 + 0.5 * Math.min(1, w));
  for (const [w, r, c] of drawn) if (y + r === q) stroke(r, c, Math.min(1, w), accent, 0.9);
  pen.globalAlpha = 1;
  pen.textBaseline = "middle";
  const selectedWeights = new Map(drawn.filter(([, r]) => y + r === q).map(([w, , c]) => [c, w]));
  for (let r = 0; r < rows; r++) {
    pen.textAlign = "right";
    pen.fillStyle = y + r === q ? accent : soft;
    pen.font = `${y + r === q ? "600 " : ""}13px ${fontFamily}`;
    pen.fillText(ellipsize(pen, shortLabel(map, "q", y + r), label - 14), from0 - 8, ends(r, 0)[0]);
  }
  for (let c = 0; c < columns; c++) {
    pen.textAlign = "left";
    pen.fillStyle = x + c === k ? accent : selectedWeights.has(c) ? strong : soft;
    pen.font = `${selectedWeights.has(c) ? "600 " : ""}13px ${fontFamily}`;
    const weight = selectedWeights.has(c) ? " " + selectedWeights.get(c).toFixed(2) : "";
    pen.fillText(ellipsize(pen, shortLabel(map, "k", x + c), label - 14 - pen.measureText(weight).width) + weight, to0 + 8, ends(0, c)[1]);
  }
  linesCanvas.dataset.lines = drawn.length;
  const few = data.remote || map.top < map.k ? `Of the ${data.remote ? 20 : map.top} greatest weights of each row, ` : "Of all weights, ";
  const undrawn = edges.length - drawn.length;
  linesNote.textContent = `${few}${drawn.length} of ${least.toFixed(2)} or more are drawn` + (undrawn ? `, ${undrawn} smaller ones are not` : "") + (outside ? `; ${outside} lead to keys outside of this window, which follows the cursor.` : ".");
}

threshold.addEventListener("input", schedule);
linesFigure.addEventListener("keydown", (event) => moveByKey(event) && event.preventDefault());
const lineAt = (event) => {
  if (!linesAt) return null;
  const box = linesCanvas.getBoundingClientRect();
  const n = Math.floor((event.clientY - box.top - 8) / LINE);
  if (event.clientX - box.left < box.width / 2) return n >= 0 && n < linesAt.rows ? { q: linesAt.y + n, k: state.k } : null;
  return n >= 0 && n < linesAt.columns ? { q: state.q, k: linesAt.x + n } : null;
};
linesCanvas.addEventListener("click", (event) => {
  const at = lineAt(event);
  if (at) change({ ...at, pinned: true });
});
linesCanvas.addEventListener("pointermove", (event) => {
  if (event.pointerType !== "mouse" || state.pinned) return;
  const at = lineAt(event);
  if (at?.q === hover?.q && at?.k === hover?.k) return;
  hover = at;
  schedule();
});
linesCanvas.addEventListener("pointerleave", () => {
  hover = null;
  schedule();
});
