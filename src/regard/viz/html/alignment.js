// Alignments: the attention of each target token to the source tokens. State: the alignment, and the target and source
// token pointed at; the address after # names the pinned ones: #2 the second alignment, #2.5 its fifth target token,
// #2.0.3 its third source token, #2.5.3 both.
const all = data.alignments;

// The parts of the page

const heading = make("h1", { dir: "auto" });
const note = make("p", { class: "note", dir: "auto" });
const chooser = make("select", { id: "chooser" });
const before = make("button", { type: "button", "aria-label": "previous alignment" }, "‹");
const after = make("button", { type: "button", "aria-label": "next alignment" }, "›");
const choice = make("div", { class: "choice" }, make("label", { for: "chooser" }, "Alignment"), chooser, before, after);
const texts = [make("p", { class: "text", dir: "auto", lang: "" }), make("p", { class: "text", dir: "auto", lang: "" })];
// a text that is cut can be scrolled by keys
const textSizes = new ResizeObserver(() => texts.forEach((text) => (text.scrollHeight > text.clientHeight ? text.setAttribute("tabindex", "0") : text.removeAttribute("tabindex"))));
texts.forEach((text) => textSizes.observe(text));
const status = make("p", { id: "status", role: "status" });
const chips = {
  source: make("div", { class: "tokens", role: "group", "aria-label": "source tokens", dir: "auto", lang: "" }),
  target: make("div", { class: "tokens", role: "group", "aria-label": "target tokens", dir: "auto", lang: "" }),
};
const emphasize = make("input", { type: "checkbox", id: "small" });
const wordsToggle = make("input", { type: "checkbox", id: "words" });
const wordsChoice = make("label", { for: "words", class: "units" }, wordsToggle, " whole words");
const mostMark = make("span");
const ramp = make("canvas", { class: "ramp", width: 120, height: 10, "aria-hidden": "true" });
const cells = make("canvas", { class: "cells" });
const above = make("canvas", { class: "above" });
const beside = make("canvas", { class: "beside" });
const corner = make("div", { class: "corner" });
const tip = make("div", { class: "tip", "aria-hidden": "true" });
tip.hidden = true;
const map = make(
  "div",
  { class: "map", tabindex: "0", role: "application", "aria-roledescription": "heat map", "aria-describedby": "keys" },
  corner, above, beside, cells, tip,
);
const table = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "greatest weights of each token" });
const details = make("details", {}, make("summary", {}, "As a table"), table);

document.getElementById("page").append(
  make("header", {}, heading, note, choice),
  make(
    "section",
    { "aria-label": "texts", class: "texts" },
    make("h2", {}, "Source"), texts[0], make("h2", {}, "Translation"), texts[1],
  ),
  make(
    "section",
    { "aria-label": "tokens", class: "card" },
    wordsChoice,
    status,
    make("h2", {}, "Source tokens"), chips.source,
    make("h2", {}, "Target tokens"), chips.target,
  ),
  make(
    "section",
    { "aria-label": "heat map", class: "card", id: "heat" },
    make("h2", {}, "Heat map"),
    make(
      "div",
      { class: "legend" },
      make("span", {}, "0"), ramp, mostMark, make("span", {}, COLOUR_RULE),
      make("label", { for: "small" }, emphasize, " emphasize small weights"),
    ),
    map,
    make(
      "p",
      { id: "keys", class: "hint" },
      "Rows are target tokens, columns are source tokens, in writing order. " +
        "Point at a cell, or move with the arrow keys, Home, End, Page Up and Page Down; Escape unpins.",
    ),
  ),
  make("section", { "aria-label": "table", class: "card", id: "table" }, details),
  make("footer", {}, make("p", {}, "Attention weights show which tokens were read, not why, nor how they were used.")),
);

// State

let number = 0; // of the alignment
let pinned = { t: -1, s: -1 };
let pointed = pinned; // pinned, or under the mouse
let alignment, weights, rows, columns;
let readCells; // [weight, column] of the key that each row of hard attention read
let greatest; // weight of the alignment, at the end of the colours
let medianShare; // the median over rows of the greatest weight

const weight = (t, s) => weights[t * columns + s];
const row = (t) => Array.from({ length: columns }, (_, s) => weight(t, s));
const column = (s) => Array.from({ length: rows }, (_, t) => weight(t, s));
// 'April' 0.87, then '4' 0.05
function heaviestTokens(list, tokens, count = 3) {
  const best = ranked(list).slice(0, count).filter(([w]) => w >= 0.005);
  if (!best.length) return ["nothing"];
  return best.flatMap(([w, n], i) => [["", ", then ", ", "][i], ...quoted(tokens[n]), " " + fixed(w)]);
}

function sentence() {
  if (!rows) return ["The translation is empty."];
  if (!columns) return ["The source is empty."];
  const { t, s } = pointed;
  if (t >= 0 && s >= 0) {
    const rank = 1 + ranked(row(t)).findIndex(([, n]) => n === s);
    const where = columns > 1 ? `, rank ${rank} of ${columns}` : "";
    return [...quoted(alignment.target[t]), " attends to ", ...quoted(alignment.source[s]), " " + exact(weight(t, s)) + where];
  }
  if (t >= 0) return [...quoted(alignment.target[t]), " attends to ", ...heaviestTokens(row(t), alignment.source)];
  if (s >= 0) return [...quoted(alignment.source[s]), " receives attention from ", ...heaviestTokens(column(s), alignment.target)];
  return [
    rows === 1
      ? `The only target token gives ${fixed(medianShare)} of its attention to one source token.`
      : `At least half of the ${rows} target tokens give ${fixed(medianShare)} or more of their attention to one source token. Point at a token to see which.`,
  ];
}

function tint(chip, w) {
  const shade = w === null ? null : colour(w / greatest);
  chip.style.backgroundColor = shade ? `rgb(${shade})` : "";
  chip.style.color = shade ? ink(shade) : "";
  const figure = w === null || w < 0.05 ? "" : w >= 0.995 ? "1" : w.toFixed(2).slice(1);
  if (chip.lastChild.textContent !== figure) chip.lastChild.textContent = figure;
}

function show() {
  const { t, s } = pointed;
  status.replaceChildren(...sentence());
  const ofSource = t >= 0 && columns ? row(t) : null;
  const ofTarget = t < 0 && s >= 0 && rows ? column(s) : null;
  [...chips.source.children].forEach((chip, n) => {
    chip.setAttribute("aria-pressed", n === s);
    tint(chip, ofSource && ofSource[n]);
  });
  [...chips.target.children].forEach((chip, n) => {
    chip.setAttribute("aria-pressed", n === t);
    tint(chip, ofTarget && ofTarget[n]);
  });
  paint();
}

// The heat map: cells are painted once, one pixel each, and enlarged when drawn; labels have canvases that stay visible

const pixels = document.createElement("canvas");
let side = 20; // of a cell, in CSS pixels
let density = 1;

function context(canvas, width, height) {
  canvas.width = Math.max(1, Math.round(width * density));
  canvas.height = Math.max(1, Math.round(height * density));
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  const pen = canvas.getContext("2d");
  pen.setTransform(density, 0, 0, density, 0, 0);
  pen.font = `13px ${getComputedStyle(document.body).fontFamily}`;
  return pen;
}

function fill() {
  pixels.width = Math.max(1, columns);
  pixels.height = Math.max(1, rows);
  if (!rows || !columns) return;
  const image = new ImageData(columns, rows);
  for (let n = 0; n < weights.length; n++) image.data.set([...colour(weights[n] / greatest), 255], 4 * n);
  pixels.getContext("2d").putImageData(image, 0, 0);
}

function paint() {
  if (!rows || !columns) return;
  const style = getComputedStyle(document.documentElement);
  const [inkColour, softColour, cardColour, accent] = ["--ink", "--soft", "--card", "--accent"].map((name) => style.getPropertyValue(name));
  const pen = context(beside, 10, 10); // for measuring text
  const widest = (tokens) => largest(tokens.slice(0, 400).map((token) => pen.measureText(label(token)).width));
  const labelled = columns <= 150 && rows <= 300;
  const left = labelled ? Math.min(110, Math.ceil(widest(alignment.target))) + 10 : 0;
  const across = widest(alignment.source);
  // Cells as large as the width allows, between a minimum and a maximum; without labels if there are many.
  const room = map.clientWidth - left - 2;
  side = Math.min(30, room / columns);
  side = labelled ? Math.max(15, Math.floor(side)) : Math.max(2, side);
  density = Math.max(0.1, Math.min(devicePixelRatio || 1, 8000 / (side * Math.max(rows, columns))));
  // Labels are horizontal where they fit into their column; all are rotated if many do not fit.
  const wide = alignment.source.map((token) => pen.measureText(label(token)).width > side - 3);
  const turned = wide.filter(Boolean).length > columns / 4 ? wide.map(() => true) : wide;
  const top = labelled ? (turned.includes(true) ? Math.min(110, Math.ceil(across)) + 10 : 22) : 4;
  const width = columns * side;
  const height = rows * side;

  const over = context(above, width, top);
  over.textBaseline = "middle";
  for (let s = 0; labelled && s < columns; s++) {
    over.fillStyle = s === pointed.s ? inkColour : softColour;
    over.save();
    over.translate((s + 0.5) * side, top - 4);
    if (turned[s]) over.rotate(-Math.PI / 2);
    else over.translate(0, -7);
    over.textAlign = turned[s] ? "left" : "center";
    over.fillText(turned[s] ? ellipsize(over, label(alignment.source[s]), top - 8) : label(alignment.source[s]), 0, 0);
    over.restore();
  }
  const by = context(beside, left, height);
  by.textBaseline = "middle";
  by.textAlign = "right";
  for (let t = 0; labelled && t < rows; t++) {
    by.fillStyle = t === pointed.t ? inkColour : softColour;
    by.fillText(ellipsize(by, label(alignment.target[t]), left - 8), left - 6, (t + 0.5) * side);
  }
  const body = context(cells, width, height);
  body.imageSmoothingEnabled = false;
  body.drawImage(pixels, 0, 0, width, height);
  if (side >= 8) {
    body.fillStyle = cardColour;
    for (let s = 1; s < columns; s++) body.fillRect(s * side - 0.5, 0, 1, height);
    for (let t = 1; t < rows; t++) body.fillRect(0, t * side - 0.5, width, 1);
  }
  body.lineWidth = 2;
  // the keys that hard attention read
  body.strokeStyle = "#D55E00";
  readCells.forEach(([w, s], t) => w > 0 && body.strokeRect(s * side + 1, t * side + 1, side - 2, side - 2));
  body.strokeStyle = accent;
  const off = side < 8 ? 2 : 0; // the frame of a thin row keeps a distance, so that the row stays visible
  if (pointed.t >= 0) body.strokeRect(1, pointed.t * side - off, width - 2, side + 2 * off);
  if (pointed.s >= 0) body.strokeRect(pointed.s * side - off, 1, side + 2 * off, height - 2);
  corner.style.height = top + "px";
  map.style.gridTemplateColumns = `${left}px ${width}px`;
}

function legend() {
  const pen = ramp.getContext("2d");
  for (let x = 0; x < ramp.width; x++) {
    pen.fillStyle = `rgb(${colour(x / (ramp.width - 1))})`;
    pen.fillRect(x, 0, 1, ramp.height);
  }
}

// Pointing, pinning, moving by keys

function point(t, s) {
  if (t === pointed.t && s === pointed.s) return;
  pointed = { t, s };
  show();
}

// A long list of tokens scrolls: the pinned token and the one of its greatest weight become visible.
function scrollIntoView() {
  if (!rows || !columns) return;
  const { t, s } = pinned;
  const best = (list) => ranked(list)[0][1];
  const targets = [
    [chips.source, s >= 0 ? s : t >= 0 ? best(row(t)) : -1],
    [chips.target, t >= 0 ? t : s >= 0 ? best(column(s)) : -1],
  ];
  for (const [group, n] of targets) {
    if (n < 0 || group.scrollHeight <= group.clientHeight) continue;
    const high = group.children[n].offsetTop - group.offsetTop;
    if (high < group.scrollTop || high > group.scrollTop + group.clientHeight - 40) group.scrollTop = high - group.clientHeight / 2;
  }
}

function pin(t, s) {
  pointed = pinned = { t, s };
  show();
  scrollIntoView();
  const hash = `#${number + 1}` + (s >= 0 ? `.${t + 1}.${s + 1}` : t >= 0 ? `.${t + 1}` : "");
  try {
    history.replaceState(null, "", hash);
  } catch {
    // a page in a frame may have no address of its own
  }
}

function listenToChips(group, name) {
  const indexOf = (chip) => [...group.children].indexOf(chip);
  const pick = (n) => (name === "target" ? [n, -1] : [-1, n]);
  const chipOf = (event) => event.target.closest("button");
  group.addEventListener("pointerover", (event) => {
    if (event.pointerType !== "touch" && chipOf(event)) point(...pick(indexOf(chipOf(event))));
  });
  group.addEventListener("pointerleave", () => point(pinned.t, pinned.s));
  group.addEventListener("click", (event) => {
    if (!chipOf(event)) return;
    const [t, s] = pick(indexOf(chipOf(event)));
    focusChip(group, indexOf(chipOf(event)));
    if (pinned.t === t && pinned.s === s) pin(-1, -1);
    else pin(t, s);
  });
  group.addEventListener("focusin", (event) => {
    if (chipOf(event).matches(":focus-visible")) pin(...pick(indexOf(chipOf(event))));
  });
  group.addEventListener("keydown", (event) => {
    const n = indexOf(chipOf(event));
    const ahead = getComputedStyle(group).direction === "rtl" ? -1 : 1;
    const count = group.children.length;
    const to = { ArrowRight: n + ahead, ArrowLeft: n - ahead, Home: 0, End: count - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    focusChip(group, Math.min(Math.max(to, 0), count - 1)).focus();
  });
}

// One stop of the Tab key per group; the arrow keys move on from there.
function focusChip(group, n) {
  [...group.children].forEach((chip, i) => (chip.tabIndex = i === n ? 0 : -1));
  return group.children[n];
}

function cellUnder(event) {
  const box = cells.getBoundingClientRect();
  const s = Math.floor((event.clientX - box.left) / side);
  const t = Math.floor((event.clientY - box.top) / side);
  return t >= 0 && t < rows && s >= 0 && s < columns ? [t, s] : null;
}

cells.addEventListener("pointermove", (event) => {
  const cell = cellUnder(event);
  if (!cell) return;
  point(...cell);
  const [t, s] = cell;
  tip.replaceChildren(...quoted(alignment.target[t]), " → ", ...quoted(alignment.source[s]), " " + exact(weight(t, s)));
  tip.hidden = false;
  const box = map.getBoundingClientRect();
  const x = event.clientX - box.left + map.scrollLeft;
  const flip = event.clientX - box.left > box.width / 2;
  tip.style.left = x + (flip ? -tip.offsetWidth - 12 : 12) + "px";
  tip.style.top = event.clientY - box.top + map.scrollTop + 14 + "px";
});
cells.addEventListener("pointerleave", () => {
  tip.hidden = true;
  point(pinned.t, pinned.s);
});
cells.addEventListener("click", (event) => {
  const cell = cellUnder(event);
  if (cell) pin(...cell);
});
map.addEventListener("focusin", () => {
  if (map.matches(":focus-visible") && rows && columns && (pointed.t < 0 || pointed.s < 0)) pin(Math.max(pointed.t, 0), Math.max(pointed.s, 0));
});
map.addEventListener("keydown", (event) => {
  const { t, s } = pinned;
  const to = {
    ArrowRight: [t, s + 1], ArrowLeft: [t, s - 1], ArrowDown: [t + 1, s], ArrowUp: [t - 1, s],
    Home: [t, 0], End: [t, columns - 1], PageUp: [0, s], PageDown: [rows - 1, s],
  }[event.key];
  if (!to) return;
  event.preventDefault();
  pin(Math.min(Math.max(to[0], 0), rows - 1), Math.min(Math.max(to[1], 0), columns - 1));
  const sight = [pointed.s * side - map.scrollLeft, map.clientWidth - beside.offsetWidth];
  if (sight[0] < 0 || sight[0] + side > sight[1]) map.scrollLeft = pointed.s * side - sight[1] / 2;
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") pin(-1, -1);
});

// Selecting an alignment

function tabulate() {
  if (!details.open) return;
  const head = make("tr", {}, ...["#", "token", "greatest weight", "second", "third"].map((name) => make("th", { scope: "col" }, name)));
  const lines = Array.from({ length: rows }, (_, t) => {
    const best = ranked(row(t)).slice(0, 3);
    const columnsOfRow = [0, 1, 2].map((n) => (n < best.length ? [...quoted(alignment.source[best[n][1]]), " " + exact(best[n][0])] : [""]));
    return make(
      "tr",
      {},
      make("td", {}, String(t + 1)),
      make("th", { scope: "row" }, make("bdi", { lang: "" }, label(alignment.target[t]))),
      ...columnsOfRow.map((parts) => make("td", {}, ...parts)),
    );
  });
  table.replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...lines)));
}

function choose(n) {
  number = n;
  // whole words take the place of tokens, unless these are words
  wordsChoice.hidden = !all[n].words;
  alignment = wordsToggle.checked && all[n].words ? { ...all[n], ...all[n].words } : all[n];
  weights = decodeFloats(alignment.weights);
  greatest = largest(weights) || 1;
  mostMark.textContent = String(Number(greatest.toFixed(3)));
  rows = alignment.target.length;
  columns = alignment.source.length;
  heading.textContent = alignment.title || "Attention of the translation";
  note.textContent = alignment.note;
  note.hidden = !alignment.note;
  chooser.value = n;
  before.disabled = n === 0;
  after.disabled = n === all.length - 1;
  alignment.text.forEach((text, i) => (texts[i].textContent = text));
  for (const name of ["source", "target"]) {
    const tokens = alignment[name].map((token) =>
      make("button", { type: "button", class: "token", tabindex: "-1", "aria-pressed": "false" }, make("span", {}, label(token)), make("small", {})),
    );
    chips[name].replaceChildren(...(tokens.length ? tokens : ["–"]));
    if (tokens.length) focusChip(chips[name], 0);
  }
  for (const id of ["heat", "table"]) document.getElementById(id).hidden = !rows || !columns;
  map.setAttribute("aria-label", `heat map of ${rows} by ${columns} tokens`);
  const most = Array.from({ length: rows }, (_, t) => largest(row(t))).sort((a, b) => b - a);
  medianShare = most[Math.floor((rows - 1) / 2)];
  readCells = alignment.hard && columns ? Array.from({ length: rows }, (_, t) => ranked(row(t))[0]) : [];
  map.dataset.read = readCells.map(([, s]) => s).join(" ");
  pinned = pointed = { t: -1, s: -1 };
  fill();
  tabulate();
}

function fromHash() {
  const match = /^#(\d+)(?:\.(\d+))?(?:\.(\d+))?$/.exec(location.hash);
  const [n, t, s] = match ? match.slice(1).map((part) => Number(part || 0) - 1) : [0, -1, -1];
  const isKnown = n >= 0 && n < all.length;
  choose(isKnown ? n : 0);
  const isOnPage = isKnown && t < rows && s < columns;
  if (isOnPage) pinned = pointed = { t, s };
  show();
  scrollIntoView();
  if (location.hash && !(match && isOnPage)) status.prepend(`${location.hash} names nothing on this page. `);
}

all.forEach((item, n) => {
  const name = item.title || item.text.join(" → ");
  chooser.append(make("option", { value: n }, `${n + 1}. ${name.length > 70 ? name.slice(0, 69) + "…" : name}`));
});
choice.hidden = all.length < 2;
const showAlignment = (n) => {
  choose(n);
  pin(-1, -1);
};
chooser.addEventListener("change", () => showAlignment(Number(chooser.value)));
before.addEventListener("click", () => showAlignment(number - 1));
after.addEventListener("click", () => showAlignment(number + 1));
wordsToggle.addEventListener("change", () => showAlignment(number));
details.addEventListener("toggle", tabulate);
listenToChips(chips.source, "source");
listenToChips(chips.target, "target");
const recolour = () => {
  emphasis = emphasize.checked;
  fill();
  legend();
  show();
};
emphasize.addEventListener("change", recolour);
dark.addEventListener("change", recolour);
addEventListener("resize", paint);
addEventListener("hashchange", fromHash);
legend();
fromHash();
