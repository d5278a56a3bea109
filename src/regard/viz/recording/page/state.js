// The state of the page: the map, the query and key, the tab and its options. The address after # holds all of it, so
// that a link restores it. Only `change` alters it; drawing follows with the next frame.
const SCALES = { linear: "linear", sqrt: "square root", log: "logarithmic" };
const state = { map: 0, q: 0, k: 0, tab: "heat", scale: "sqrt", sort: "order", shades: "shared", hide: false, pinned: false, against: -1, view: null };
let hover = null; // the cell under the mouse, {q, k}
let cursorMoved = false; // a key moved the cursor: its cell must be scrolled into view

// A gate without positions, with one weight per channel; a page of such gates alone begins with their bars.
const isChannelGate = (layer) => layer.kind === "gate" && !layer.grid && layer.k === 1;
const defaultTab = data.layers.every(isChannelGate) ? "channels" : "heat";

// The first view: a class token in the last layer over its image, or a gate over it; otherwise the first map.
const hasClassToken = (layer) => layer.kind === "self" && layer.grid && layer.q === layer.k && layer.k > layer.grid[0] * layer.grid[1];
function firstView() {
  const own = data.layers.filter((layer) => layer.grid && !layer.summary && layer.side === "A");
  const layer = data.image ? own.findLast(hasClassToken) ?? own.find((layer) => layer.kind === "gate") : null;
  return layer ? { map: layer.first, tab: "image" } : { map: 0, tab: defaultTab };
}

const currentMap = () => maps[state.map];
const point = () => hover || state;
const clamp = (n, low, high) => Math.max(low, Math.min(high, n));

// The token of a row or a column, or the place of a patch in its image; null where it is unknown.
function tokenAt(map, axis, n) {
  const text = data.texts[axis === "q" ? map.layer.rows : map.layer.columns];
  return text ? label(text[n]) : patchName(map, axis, n);
}
function patchName({ layer, k }, axis, n) {
  if (!layer.grid || layer.kind === "gate" || (axis === "q" && !(layer.kind === "self" && layer.q === k && !layer.at && !layer.step))) return null;
  const [rows, columns] = layer.grid;
  const patch = n - (k - rows * columns);
  if (patch >= 0) return `row ${Math.floor(patch / columns) + 1}, column ${(patch % columns) + 1}`;
  return k - rows * columns === 1 ? "class token" : null;
}
const positionOf = (map, axis, n) => (axis === "k" ? n : map.layer.at ? map.layer.at[n] : map.layer.step + n);
const shortLabel = (map, axis, n) => tokenAt(map, axis, n) ?? String(positionOf(map, axis, n));
// The names of rows and columns, by the kind of attention; the recording may name its queries and keys otherwise.
const kindOf = (map) => data.kinds[map.layer.kind];
const axis = (map) => ({ q: kindOf(map).row, k: kindOf(map).column });
function axisNames() {
  const kinds = Object.values(data.kinds);
  const { rows, columns } = kinds.find((kind) => kind.rows === "queries") ?? kinds[0];
  return { q: data.about[rows] ?? rows, k: data.about[columns] ?? columns };
}
// In running text: query 5 'cat'; a token keeps its own direction, in no known language.
function labelNodes(map, axis, n) {
  const text = tokenAt(map, axis, n);
  return text === null ? [String(positionOf(map, axis, n))] : [`${positionOf(map, axis, n)} `, "‘", make("bdi", { lang: "" }, text), "’"];
}

const calls = (layer) => data.layers.filter((candidate) => candidate.name === layer.name && candidate.side === layer.side);
function layerName(layer) {
  const several = calls(layer).length > 1;
  const other = layer.side === "B" ? " of the other recording" : "";
  return layer.name + (several ? ` · call ${layer.call}` : "") + (layer.step ? ` · from ${layer.step}` : "") + other;
}
// Heads have their numbers in the model, of which only some may have been recorded.
const headName = (layer, head) => (layer.names ? layer.names[head] : head);
// The heads of a summary are the layers that it sums up.
const headWord = (layer) => (layer.summary ? "layer" : "head");
const mapName = (map) => layerName(map.layer) + ((map.layer.kind === "gate" || map.layer.kind === "cell" || map.layer.summary) && map.layer.heads === 1 ? "" : `, ${headWord(map.layer)} ${headName(map.layer, map.head)}`);

// The body carries data-drawn, the number of the last drawing, only while the picture is up to date.
let frameRequested = false;
function schedule() {
  delete document.body.dataset.drawn;
  if (frameRequested) return;
  frameRequested = true;
  requestAnimationFrame(() => {
    frameRequested = false;
    draw();
  });
}

// Alters the state, keeps it within the map, writes it into the address and draws.
function change(part) {
  const before = currentMap();
  Object.assign(state, part);
  state.map = clamp(state.map, 0, maps.length - 1);
  const map = currentMap();
  if (map !== before) {
    hover = null;
    if (map.q !== before.q || map.k !== before.k) state.view = null;
  }
  state.q = clamp(state.q, 0, Math.max(0, map.q - 1));
  state.k = clamp(state.k, 0, Math.max(0, map.k - 1));
  saveAddress();
  schedule();
}

// The address is written once, after a delay: browsers limit how often it may change.
let addressTimer = 0;
// The address that was last read or written. Another one is a link that was followed and is not read yet.
let knownHash = location.hash;
function saveAddress() {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(writeAddress, 120);
}

function writeAddress() {
  const map = currentMap();
  const parts = [`layer=${map.layer.number}`, `head=${map.head}`, `q=${state.q}`, `k=${state.k}`];
  if (state.tab !== defaultTab) parts.push(`tab=${state.tab}`);
  if (state.scale !== "sqrt") parts.push(`scale=${state.scale}`);
  if (state.sort !== "order") parts.push(`sort=${state.sort}`);
  if (state.shades !== "shared") parts.push(`shades=${state.shades}`);
  if (state.hide) parts.push("sinks=hidden");
  if (state.pinned) parts.push("pinned=1");
  if (unit === "words") parts.push("units=words");
  if (state.against >= 0) parts.push(`against=${state.against}`);
  if (state.view) parts.push(`view=${state.view.map((n) => Math.round(n * 100) / 100).join(",")}`);
  const hash = "#" + parts.join("&");
  if (hash === location.hash || location.hash !== knownHash) return;
  try {
    history.replaceState(null, "", hash);
    knownHash = location.hash;
  } catch {
    // a page inside a notebook has no address of its own
  }
}

// Reads the state from the address; missing parts have their defaults. False if the address names nothing on this page.
function readAddress() {
  clearTimeout(addressTimer);
  knownHash = location.hash;
  const parameters = new URLSearchParams(location.hash.slice(1));
  const integer = (name, most) => {
    const n = Number(parameters.get(name) ?? 0);
    return Number.isInteger(n) && n >= 0 && n < most ? n : null;
  };
  const layer = data.layers[integer("layer", data.layers.length) ?? -1];
  const head = layer ? integer("head", layer.heads) : null;
  const [q, k] = layer ? [integer("q", layer.q), integer("k", layer.k)] : [null, null];
  const view = (parameters.get("view") || "").split(",").map(Number);
  const option = (name, all, usual) => (all.includes(parameters.get(name)) ? parameters.get(name) : usual);
  const isPlain = location.hash.length < 2;
  Object.assign(state, {
    map: layer && head !== null ? layer.first + head : 0,
    q: q ?? 0,
    k: k ?? 0,
    tab: option("tab", tabs.map((tab) => tab.name), defaultTab),
    scale: option("scale", Object.keys(SCALES), "sqrt"),
    sort: option("sort", Object.keys(SORTS), "order"),
    shades: option("shades", Object.keys(SHADES), "shared"),
    hide: parameters.get("sinks") === "hidden",
    pinned: parameters.get("pinned") === "1",
    against: parameters.has("against") ? integer("against", maps.length) ?? -1 : -1,
    view: view.length === 3 && view.every((n) => Number.isFinite(n)) ? view : null,
    ...(isPlain ? firstView() : {}),
  });
  return isPlain || (layer !== undefined && head !== null && q !== null && k !== null);
}

// Moves the cursor by a key, in every figure of a map. True if the key has a meaning.
function moveByKey(event) {
  if (event.altKey || event.metaKey) return false;
  const map = currentMap();
  const page = Math.max(1, Math.round(Math.min(16, map.q / 4)));
  const far = event.ctrlKey;
  const steps = {
    ArrowUp: { q: state.q - 1 },
    ArrowDown: { q: state.q + 1 },
    ArrowLeft: { k: state.k - 1 },
    ArrowRight: { k: state.k + 1 },
    PageUp: { q: state.q - page },
    PageDown: { q: state.q + page },
    Home: far ? { q: 0, k: 0 } : { k: 0 },
    End: far ? { q: map.q - 1, k: map.k - 1 } : { k: map.k - 1 },
    "[": { map: neighbour(map, 0, -1) },
    "]": { map: neighbour(map, 0, 1) },
    "{": { map: neighbour(map, -1, 0) },
    "}": { map: neighbour(map, 1, 0) },
    Enter: { pinned: !state.pinned },
    Escape: { pinned: false },
  };
  const step = steps[event.key];
  if (!step || (far && !["Home", "End"].includes(event.key))) return false;
  hover = null;
  cursorMoved = true;
  change(step);
  return true;
}

// The map this many layers and heads further on, or the same map where there is none.
function neighbour(map, down, across) {
  const layer = data.layers[map.layer.number + down];
  const head = map.head + across;
  if (!layer || head < 0 || head >= (across ? layer.heads : Infinity)) return map.n;
  return layer.first + Math.min(head, layer.heads - 1);
}
