// Assembles the page.
const heat = heatMap(plainPainter, "heat map");
const difference = heatMap(differencePainter, "difference of two maps");

const button = (text, label, act) => {
  const element = make("button", { type: "button", "aria-label": label, title: label }, text);
  element.addEventListener("click", act);
  return element;
};
const activeHeatMap = () => (state.tab === "difference" ? difference : heat);
const zooms = make("div", { class: "zooms" }, button("−", "zoom out", () => activeHeatMap().zoom(0.5)), button("+", "zoom in", () => activeHeatMap().zoom(2)), button("whole", "show the whole map", () => activeHeatMap().whole()));
const key = make("div", { class: "legend" }, ramp, marks, rule, maskSample);
const chooser = (id, name, ...options) => {
  const select = make("select", { id }, ...options);
  return [select, make("span", { class: "field" }, make("label", { for: id }, name), select)];
};

// The map that is subtracted
const [againstLayer, againstLayerField] = chooser("against-layer", "minus layer");
const [againstHead, againstHeadField] = chooser("against-head", "head");
// The heads of a layer to choose from; a list that is open stays as it is.
function fillHeads(select, layer) {
  if (select.dataset.layer === String(layer.number)) return;
  select.dataset.layer = layer.number;
  select.replaceChildren(...Array.from({ length: layer.heads }, (_, h) => make("option", { value: h }, String(headName(layer, h)))));
}
const comparableLayers = (map) => data.layers.filter((layer) => layer.q === map.q && layer.k === map.k);
// The same head of the other recording, or the next head.
function counterpart(map) {
  const twinLayer = data.layers.find((layer) => layer.side !== map.layer.side && layer.name === map.layer.name && layer.call === map.layer.call && layer.q === map.q && layer.k === map.k);
  if (twinLayer) return twinLayer.first + Math.min(map.head, twinLayer.heads - 1);
  return map.layer.first + ((map.head + 1) % map.layer.heads);
}
// The reason why the other recording of a page has no counterpart of a map; "" if it has one, or if there is no other.
function missingCounterpart(map) {
  const others = data.layers.filter((layer) => layer.side !== map.layer.side);
  const named = others.filter((layer) => layer.name === map.layer.name);
  if (!others.length || named.some((layer) => layer.call === map.layer.call && layer.q === map.q && layer.k === map.k)) return "";
  const which = map.layer.side === "A" ? "B, the other recording," : "A, the recording,";
  if (!named.length) return ` ${which} has no layer ${map.layer.name}.`;
  const twin = named.find((layer) => layer.call === map.layer.call) ?? named[0];
  return twin.q === map.q && twin.k === map.k
    ? ` ${which} has no call ${map.layer.call} of ${map.layer.name}.`
    : ` ${which} has ${twin.q} × ${twin.k} weights there and this map ${map.q} × ${map.k}, so they cannot be subtracted.`;
}
const differenceNote = make("p", { class: "hint" });
function drawDifference() {
  const map = currentMap();
  const other = maps[state.against];
  if (!other || other.q !== map.q || other.k !== map.k) state.against = counterpart(map);
  const against = maps[state.against];
  const layers = comparableLayers(map).slice(0, 200);
  const offered = layers.map((layer) => layer.number).join();
  if (againstLayer.dataset.offered !== offered) againstLayer.replaceChildren(...layers.map((layer) => make("option", { value: layer.number }, layerName(layer))));
  againstLayer.dataset.offered = offered;
  againstLayer.value = against.layer.number;
  fillHeads(againstHead, against.layer);
  againstHead.value = against.head;
  differenceNote.textContent = `Orange: ${mapName(map)} is greater; violet: ${mapName(against)} is.${missingCounterpart(map)}`;
  difference.draw();
}
againstLayer.addEventListener("change", () => change({ against: data.layers[againstLayer.value].first }));
againstHead.addEventListener("change", () => change({ against: maps[state.against].layer.first + Number(againstHead.value) }));

// Tabs
const progressNote = make("p", { class: "hint" }, "The server is reading this map from the top down; missing parts follow. Zoom in to see single weights at once.");
function drawHeat() {
  progressNote.hidden = !data.remote || Boolean(facts.peek(state.map));
  heat.draw();
}
const field = (label, input, ...more) => make("span", { class: "field" }, make("label", { for: input.id }, label), input, ...more);
const tabs = [
  { name: "channels", title: "Channels", draw: drawChannels, parts: [channelFigure, channelNote] },
  { name: "heat", title: "Heat map", draw: drawHeat, parts: [progressNote, heat.figure, make("p", { class: "hint" }, Object.values(data.kinds).every((kind) => !kind.has_entropy) ? "Bars: below the mean weight of each column." : "Bars: on the right the entropy of each row, below the mean weight of each column.")] },
  { name: "lines", title: "Lines", draw: drawLines, parts: [make("div", { class: "tools" }, field("from a weight of", threshold, thresholdOutput)), linesFigure, linesNote] },
  { name: "text", title: "Text", draw: drawText, parts: [textFigure, textNote] },
  { name: "image", title: "Image", draw: drawImage, parts: [make("div", { class: "tools" }, field("smooth", smooth)), headsCanvas, make("div", { class: "pair" }, bare, imageFigure), imageNote] },
  { name: "glimpses", title: "Glimpses", draw: drawGlimpses, parts: [glimpseFigure, glimpseNote] },
  { name: "steps", title: "Steps", draw: drawSteps, parts: [make("div", { class: "tools" }, previousStep, field("step", stepRange, stepOutput), nextStep), stepFigure, stepNote] },
  { name: "difference", title: "Difference", draw: drawDifference, parts: [make("div", { class: "tools" }, againstLayerField, againstHeadField), difference.figure, differenceNote] },
  { name: "table", title: "Table", draw: drawTable, parts: [make("div", { class: "tools" }, csvButton), tableBox, tableNote] },
].filter(({ name }) => {
  const needed = { channels: isChannelGate, image: (layer) => layer.grid, glimpses: (layer) => layer.kind === "glimpse" && layer.grid }[name];
  return !needed || data.layers.some(needed);
});
for (const tab of tabs) {
  tab.button = make("button", { type: "button", role: "tab", id: `tab-${tab.name}`, "aria-controls": `panel-${tab.name}` }, tab.title);
  tab.panel = make("div", { role: "tabpanel", id: `panel-${tab.name}`, "aria-labelledby": `tab-${tab.name}` }, ...tab.parts);
  tab.button.addEventListener("click", () => change({ tab: tab.name }));
}
const tabList = make("div", { role: "tablist", "aria-label": "views", class: "tabs" }, ...tabs.map((tab) => tab.button));
tabList.addEventListener("keydown", (event) => {
  const offered = tabs.filter((tab) => !tab.button.hidden);
  const now = offered.findIndex((tab) => tab.name === state.tab);
  const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: offered.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const tab = offered[(to + offered.length) % offered.length];
  change({ tab: tab.name });
  tab.button.focus();
});

// Selects a map by name
const modules = [...new Map(data.layers.map((layer) => [`${layer.side} ${layer.name}`, layer])).values()];
const [moduleSelect, moduleField] = chooser("module", "layer", ...modules.map((layer, n) => make("option", { value: n }, layer.name + (layer.side === "B" ? " (other recording)" : ""))));
const callInput = make("input", { type: "number", id: "call", min: "0" });
const callField = field("call", callInput);
const [headSelect, headField] = chooser("head", "head");
const [scaleSelect, scaleField] = chooser("scale", "colours", ...Object.entries(SCALES).map(([value, name]) => make("option", { value }, name)));
// Another unit has other maps: the page starts again with them.
const [unitSelect, unitField] = chooser("units", "by", ...["tokens", "words"].map((name) => make("option", { value: name }, name)));
unitSelect.value = unit;
unitField.hidden = !hasWords;
unitSelect.addEventListener("change", () => {
  clearTimeout(addressTimer);
  const place = unitSelect.value === "words" ? "&units=words" : "";
  try {
    history.replaceState(null, "", `#tab=${state.tab}${place}`);
  } catch {
    window.name = place.slice(1); // a page inside a notebook
  }
  location.reload();
});
const hideSinks = make("input", { type: "checkbox", id: "sinks" });
const verificationNote = make("p", { class: "sure" });
moduleSelect.addEventListener("change", () => {
  const layer = calls(modules[moduleSelect.value])[0];
  change({ map: layer.first + Math.min(currentMap().head, layer.heads - 1) });
});
callInput.addEventListener("change", () => {
  const layer = calls(currentMap().layer)[clamp(Number(callInput.value) || 0, 0, calls(currentMap().layer).length - 1)];
  change({ map: layer.first + Math.min(currentMap().head, layer.heads - 1) });
});
headSelect.addEventListener("change", () => change({ map: currentMap().layer.first + Number(headSelect.value) }));
scaleSelect.addEventListener("change", () => change({ scale: scaleSelect.value }));
hideSinks.addEventListener("change", () => change({ hide: hideSinks.checked }));

// One click to the mean over heads of the selected layer, and to the rollout.
const summaryButtons = data.layers.filter((layer) => layer.summary).map((layer) =>
  button(layer.name, `show the ${layer.name}`, () => {
    const own = data.layers.filter((other) => !other.summary && other.kind === layer.kind && other.q === layer.q && other.k === layer.k);
    change({ map: layer.first + clamp(own.indexOf(currentMap().layer), 0, layer.heads - 1) });
  }));
// Tabs that mean nothing for a map are not offered.
function isMeaningful(tab, layer) {
  if (isChannelGate(layer)) return ["channels", "table"].includes(tab);
  if (tab === "text") return !layer.grid || layer.columns === null || data.texts[layer.columns] !== null;
  return { channels: false, image: Boolean(layer.grid), glimpses: layer.kind === "glimpse" && Boolean(layer.grid), lines: layer.kind !== "gate" && layer.kind !== "cell" }[tab] ?? true;
}

const galleryNote = make("p", { class: "hint" });
let controlsStamp = "";
function drawControls() {
  const { layer, head } = currentMap();
  galleryNote.textContent = galleryText();
  const stamp = [state.map, state.tab, state.scale, state.sort, state.shades, state.hide].join();
  if (stamp === controlsStamp) return;
  controlsStamp = stamp;
  moduleSelect.value = modules.findIndex((candidate) => candidate.name === layer.name && candidate.side === layer.side);
  const several = calls(layer);
  callField.hidden = several.length < 2;
  callInput.max = several.length - 1;
  callInput.value = several.indexOf(layer);
  fillHeads(headSelect, layer);
  headSelect.value = head;
  scaleSelect.value = state.scale;
  sorting.value = state.sort;
  shading.value = state.shades;
  hideSinks.checked = state.hide;
  verificationNote.hidden = layer.verified;
  verificationNote.textContent = layer.certificate === null
    ? "Unverified: nothing could be checked, so this map may differ from the weights that the model used."
    : `Unverified: max |P·V − out| is ${layer.certificate}, more than ${layer.tolerance}. This map differs from the weights that the model used.`;
  zooms.hidden = !["heat", "difference"].includes(state.tab);
  // the colours of an overlay are relative to its own greatest weight
  key.hidden = ["table", "image", "glimpses", "channels"].includes(state.tab) || (state.tab === "steps" && Boolean(layer.grid));
  for (const tab of tabs) {
    tab.button.hidden = !isMeaningful(tab.name, layer);
    const isSelected = tab.name === state.tab;
    tab.button.setAttribute("aria-selected", isSelected);
    tab.button.tabIndex = isSelected ? 0 : -1;
    tab.panel.hidden = !isSelected;
  }
}

function draw() {
  const drawing = ++drawingNumber;
  if (!isMeaningful(state.tab, currentMap().layer)) state.tab = tabs.find((tab) => isMeaningful(tab.name, currentMap().layer)).name;
  measureGallery();
  drawControls();
  drawLegend();
  drawThumbnails();
  const drawn = tabs.find((tab) => tab.name === state.tab).draw(drawing);
  Promise.all([drawn, drawDetail(drawing), updateStatus(drawing)]).then(() => {
    if (drawing === drawingNumber && !frameRequested) document.body.dataset.drawn = drawing;
  }, showError);
  cursorMoved = false;
}

const about = Object.entries(data.about).map(([term, text]) => make("div", {}, make("dt", {}, term), make("dd", {}, make("bdi", {}, text))));
document.getElementById("page").append(
  make("header", {}, make("h1", { dir: "auto" }, document.title), make("p", { class: "note" }, data.caution), errorMessage),
  make("section", { class: "card heads", "aria-label": "layers and heads" },
    make("div", { class: "tools" }, make("span", { class: "field" }, make("label", { for: "sorting" }, "heads by"), sorting), field("colours", shading)),
    gallery,
    galleryNote),
  make("section", { class: "card selected-map", "aria-label": "the selected map" },
    make("div", { class: "tools choose" }, moduleField, callField, headField, unitField, ...summaryButtons, scaleField, make("span", { class: "field" }, hideSinks, make("label", { for: "sinks" }, "hide sinks"))),
    verificationNote, status, tabList,
    make("div", { class: "tools between" }, key, zooms),
    ...tabs.map((tab) => tab.panel),
    make("p", { id: "keys", class: "hint" },
      `Rows are ${axisNames().q}, columns ${axisNames().k}. ` + "Arrow keys move, Home and End go to the first and last key, Page Up and Page Down move by pages; [ and ] change the head, { and } the layer; + and − zoom, 0 shows all, Enter pins, Escape unpins.")),
  detail,
  make("footer", {}, ...data.notes.map((note) => make("p", { class: "notes" }, note)), make("dl", { class: "facts" }, ...about)),
);
dark.addEventListener("change", schedule);
addEventListener("resize", schedule);
addEventListener("hashchange", () => {
  if (namedUnit() !== unit) location.reload();
  if (!readAddress()) showError(new Error(`${location.hash} names nothing on this page`));
  cursorMoved = true;
  schedule();
});
if (!("DecompressionStream" in window)) showError(new Error("this browser is too old to unpack the weights; use one from 2023 or later"));
if (!readAddress()) showError(new Error(`${location.hash} names nothing on this page`));
draw();
scrollToThumbnail();
if (data.remote) fetchThumbnails();
