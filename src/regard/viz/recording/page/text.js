// The text, each token tinted by the weight that the selected query gives it; and the queries in order, over all calls
// of the module, as a generating model makes them.
const MAX_TOKENS = 240;
const textBox = make("div", { class: "running", dir: "auto", lang: "" });
const textFigure = make("div", { class: "figure", tabindex: "0", role: "application", "aria-roledescription": "tinted text", "aria-label": "text tinted by weight", "aria-describedby": "keys" }, textBox);
const textNote = make("p", { class: "hint" });
let textStart = 0;

async function drawText(drawing) {
  const map = currentMap();
  const { q, k } = point();
  const { weights, whole } = await row(map, q);
  if (drawing !== drawingNumber) return;
  const count = Math.min(map.k, MAX_TOKENS);
  if (k < textStart || k >= textStart + count) textStart = k - Math.floor(count / 2);
  textStart = clamp(textStart, 0, map.k - count);
  const self = map.layer.kind === "self";
  const chips = [];
  for (let j = textStart; j < textStart + count; j++) {
    const w = weights[j];
    const chip = make("span", { class: "chip", "data-key": j }, make("span", { class: "isolated" }, shortLabel(map, "k", j)));
    if (w !== 0) {
      const tint = weightColour(map, w);
      Object.assign(chip.style, { backgroundColor: `rgb(${tint})`, color: ink(tint) });
    }
    if (j === k) chip.classList.add("at");
    if (self && j === positionOf(map, "q", q)) chip.classList.add("query");
    chip.title = `${positionOf(map, "k", j)}: ${whole || w ? number(w) : "not stored"}`;
    chips.push(chip);
  }
  textBox.replaceChildren(...chips);
  const outside = map.k - count;
  textNote.textContent =
    (self ? "The query is underlined; " : "") + "the brighter a token, the greater its weight." +
    (whole ? "" : ` Only the ${map.top} greatest weights of the row are stored.`) +
    (outside ? ` Keys ${textStart} to ${textStart + count - 1} of ${map.k} are shown; the window follows the cursor.` : "");
}
textBox.addEventListener("click", (event) => {
  const chip = event.target.closest(".chip");
  if (!chip) return;
  const [map, j] = [currentMap(), Number(chip.dataset.key)];
  const query = map.layer.at ? map.layer.at.indexOf(j) : j - map.layer.step;
  change(map.layer.kind === "self" && query >= 0 && query < map.q ? { q: query, k: j } : { k: j });
});
textFigure.addEventListener("keydown", (event) => moveByKey(event) && event.preventDefault());

// Steps: all queries of the module with this head, call after call.
const stepRange = make("input", { type: "range", id: "step", min: "0", step: "1" });
const stepOutput = make("output", { for: "step" });
const previousStep = make("button", { type: "button", "aria-label": "previous step" }, "‹");
const nextStep = make("button", { type: "button", "aria-label": "next step" }, "›");
const stepCanvas = make("canvas", { class: "cells" });
const stepFigure = make("div", { class: "figure", tabindex: "0", role: "application", "aria-roledescription": "steps", "aria-label": "steps", "aria-describedby": "keys" }, stepCanvas);
const stepNote = make("p", { class: "hint" });
let steps = [];

function stepsOf(map) {
  const list = [];
  for (const layer of calls(map.layer)) {
    if (map.head < layer.heads) for (let q = 0; q < layer.q; q++) list.push({ map: layer.first + map.head, q });
  }
  return list;
}

async function drawSteps(drawing) {
  const map = currentMap();
  steps = stepsOf(map);
  const now = steps.findIndex((step) => step.map === map.n && step.q === point().q);
  stepRange.max = steps.length - 1;
  stepRange.value = now;
  stepOutput.textContent = `${now + 1} of ${steps.length}`;
  if (map.layer.grid) return drawStrip(drawing, now);
  const count = Math.min(steps.length, 28);
  const first = clamp(now - Math.floor(count / 2), 0, steps.length - count);
  const visibleSteps = steps.slice(first, first + count);
  const rows = await Promise.all(visibleSteps.map((step) => row(maps[step.map], step.q)));
  if (drawing !== drawingNumber) return;
  const keys = Math.max(...visibleSteps.map((step) => maps[step.map].k));
  const width = Math.max(220, stepFigure.clientWidth);
  const [left, high] = [Math.min(120, width * 0.3), 20];
  const pen = context(stepCanvas, width, count * high + 4);
  pen.clearRect(0, 0, width, count * high + 4);
  const [soft, accent] = cssColours("--soft", "--accent");
  const size = Math.min(40, (width - left - 4) / keys);
  const bin = Math.max(1, Math.ceil(1 / size));
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  visibleSteps.forEach((step, n) => {
    const stepMap = maps[step.map];
    const { weights } = rows[n];
    for (let j = 0; j < stepMap.k; j += bin) {
      let most = 0;
      for (let b = j; b < Math.min(stepMap.k, j + bin); b++) if (Math.abs(weights[b]) > Math.abs(most)) most = weights[b];
      pen.fillStyle = `rgb(${weightColour(stepMap, most)})`;
      pen.fillRect(left + j * size, n * high + 3, Math.max(1, size * bin - (size > 6 ? 1 : 0)), high - 3);
    }
    const isSelected = first + n === now;
    pen.fillStyle = isSelected ? accent : soft;
    pen.font = `${isSelected ? "600 " : ""}13px ${fontFamily}`;
    pen.fillText(ellipsize(pen, shortLabel(stepMap, "q", step.q), left - 14), left - 8, n * high + high / 2 + 1);
    if (!isSelected) return;
    pen.strokeStyle = accent;
    pen.lineWidth = 2;
    pen.strokeRect(left - 1, n * high + 2, stepMap.k * size + 1, high - 1);
  });
  stepNote.textContent = "Each line is a step, its cells are the keys that existed at that step. The list beside it shows the weights of the selected step.";
}
function goToStep(n) {
  const step = steps[clamp(n, 0, steps.length - 1)];
  if (!step) return;
  hover = null;
  change({ map: step.map, q: step.q });
}
const currentStep = () => steps.findIndex((step) => step.map === state.map && step.q === state.q);
stepRange.addEventListener("input", () => goToStep(Number(stepRange.value)));
previousStep.addEventListener("click", () => goToStep(currentStep() - 1));
nextStep.addEventListener("click", () => goToStep(currentStep() + 1));
// Up and down go from step to step, over all calls.
function moveByStep(event) {
  const by = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10 }[event.key];
  steps = stepsOf(currentMap());
  if (by) goToStep(currentStep() + by);
  else if (!moveByKey(event)) return;
  event.preventDefault();
}
stepFigure.addEventListener("keydown", moveByStep);
