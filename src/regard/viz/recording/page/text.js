// The text, tinted by what the chosen query gives to each of its pieces; and the queries one after the other, as a
// model that generates makes them, over all calls of the module.
const MOST_PIECES = 240;
const textBox = make("div", { class: "running", dir: "auto", lang: "" });
const textFigure = make("div", { class: "figure", tabindex: "0", role: "application", "aria-roledescription": "tinted text", "aria-label": "text tinted by weight", "aria-describedby": "keys" }, textBox);
const textNote = make("p", { class: "hint" });
let textFrom = 0;

async function drawText(mine) {
  const map = here();
  const { q, k } = point();
  const { weights, whole } = await row(map, q);
  if (mine !== ticket) return;
  const count = Math.min(map.k, MOST_PIECES);
  if (k < textFrom || k >= textFrom + count) textFrom = k - Math.floor(count / 2);
  textFrom = clamp(textFrom, 0, map.k - count);
  const self = map.layer.kind === "self";
  const pieces = [];
  for (let j = textFrom; j < textFrom + count; j++) {
    const w = weights[j];
    const chip = make("span", { class: "chip", "data-key": j }, make("bdi", {}, short(map, "k", j)));
    if (w !== 0) {
      const tint = rgb(w / map.scale, map.signed);
      Object.assign(chip.style, { backgroundColor: `rgb(${tint})`, color: ink(tint) });
    }
    if (j === k) chip.classList.add("at");
    if (self && j === place(map, "q", q)) chip.classList.add("asks");
    chip.title = `${place(map, "k", j)}: ${whole || w ? number(w) : "not kept"}`;
    pieces.push(chip);
  }
  textBox.replaceChildren(...pieces);
  const outside = map.k - count;
  textNote.textContent =
    (self ? "Underlined is the piece that looks; " : "") + "the darker (in the dark: the brighter), the more it is looked at." +
    (whole ? "" : ` Only the ${map.top} greatest weights of the row are kept.`) +
    (outside ? ` Keys ${textFrom} to ${textFrom + count - 1} of ${map.k} are shown; the window follows the cursor.` : "");
}
textBox.addEventListener("click", (event) => {
  const chip = event.target.closest(".chip");
  if (!chip) return;
  const [map, j] = [here(), Number(chip.dataset.key)];
  const asked = map.layer.at ? map.layer.at.indexOf(j) : j - map.layer.step;
  change(map.layer.kind === "self" && asked >= 0 && asked < map.q ? { q: asked, k: j } : { k: j });
});
textFigure.addEventListener("keydown", (event) => walk(event) && event.preventDefault());

// Steps: all queries that the module has asked with this head, call after call.
const stepRange = make("input", { type: "range", id: "step", min: "0", step: "1" });
const stepSaid = make("output", { for: "step" });
const stepBack = make("button", { type: "button", "aria-label": "step before" }, "‹");
const stepOn = make("button", { type: "button", "aria-label": "next step" }, "›");
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

async function drawSteps(mine) {
  const map = here();
  steps = stepsOf(map);
  const now = steps.findIndex((step) => step.map === map.n && step.q === point().q);
  stepRange.max = steps.length - 1;
  stepRange.value = now;
  stepSaid.textContent = `${now + 1} of ${steps.length}`;
  if (map.layer.grid) return drawStrip(mine, now);
  const count = Math.min(steps.length, 28);
  const first = clamp(now - Math.floor(count / 2), 0, steps.length - count);
  const shownSteps = steps.slice(first, first + count);
  const rows = await Promise.all(shownSteps.map((step) => row(maps[step.map], step.q)));
  if (mine !== ticket) return;
  const keys = Math.max(...shownSteps.map((step) => maps[step.map].k));
  const width = Math.max(220, stepFigure.clientWidth);
  const [left, high] = [Math.min(120, width * 0.3), 20];
  const pen = context(stepCanvas, width, count * high + 4);
  pen.clearRect(0, 0, width, count * high + 4);
  const [soft, accent] = paints("--soft", "--accent");
  const size = Math.min(40, (width - left - 4) / keys);
  const bin = Math.max(1, Math.ceil(1 / size));
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  shownSteps.forEach((step, n) => {
    const one = maps[step.map];
    const { weights } = rows[n];
    for (let j = 0; j < one.k; j += bin) {
      let most = 0;
      for (let b = j; b < Math.min(one.k, j + bin); b++) if (Math.abs(weights[b]) > Math.abs(most)) most = weights[b];
      pen.fillStyle = `rgb(${rgb(most / one.scale, one.signed)})`;
      pen.fillRect(left + j * size, n * high + 3, Math.max(1, size * bin - (size > 6 ? 1 : 0)), high - 3);
    }
    const chosen = first + n === now;
    pen.fillStyle = chosen ? accent : soft;
    pen.font = `${chosen ? "600 " : ""}13px ${fontFamily}`;
    pen.fillText(cut(pen, short(one, "q", step.q), left - 14), left - 8, n * high + high / 2 + 1);
    if (!chosen) return;
    pen.strokeStyle = accent;
    pen.lineWidth = 2;
    pen.strokeRect(left - 1, n * high + 2, one.k * size + 1, high - 1);
  });
  stepNote.textContent = "A line is a step, its cells the keys that were there to look at. The list beside tells the weights of the chosen step.";
}
function toStep(n) {
  const step = steps[clamp(n, 0, steps.length - 1)];
  if (!step) return;
  hover = null;
  change({ map: step.map, q: step.q });
}
const currentStep = () => steps.findIndex((step) => step.map === state.map && step.q === state.q);
stepRange.addEventListener("input", () => toStep(Number(stepRange.value)));
stepBack.addEventListener("click", () => toStep(currentStep() - 1));
stepOn.addEventListener("click", () => toStep(currentStep() + 1));
// Up and down go from step to step, over all calls.
function walkSteps(event) {
  const by = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10 }[event.key];
  steps = stepsOf(here());
  if (by) toStep(currentStep() + by);
  else if (!walk(event)) return;
  event.preventDefault();
}
stepFigure.addEventListener("keydown", walkSteps);
