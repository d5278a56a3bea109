// What is shown: which map, which query and key, in which way. All of it stands in the address after #, so that a
// link leads back to it. `change` is the one way to alter it; drawing follows with the next frame.
const SCALES = { linear: "linear", sqrt: "square root", log: "logarithmic" };
const state = { map: 0, q: 0, k: 0, tab: "heat", scale: "sqrt", sort: "order", hide: false, pinned: false, against: -1, view: null };
let hover = null; // the cell under the mouse, {q, k}
let moved = false; // the cursor was moved by a key: what it points at must be in sight

// A gate that knows no places, with one weight a channel; a page of such gates alone begins with their bars.
const weighsChannels = (layer) => layer.kind === "gate" && !layer.grid && layer.k === 1;
const usualTab = data.layers.every(weighsChannels) ? "channels" : "heat";

const here = () => maps[state.map];
const point = () => hover || state;
const clamp = (n, low, high) => Math.max(low, Math.min(high, n));

// What stands at a row or a column.
function piece(map, axis, n) {
  const text = data.texts[axis === "q" ? map.layer.rows : map.layer.columns];
  return text ? label(text[n]) : null;
}
const place = (map, axis, n) => (axis === "k" ? n : map.layer.at ? map.layer.at[n] : map.layer.step + n);
const short = (map, axis, n) => piece(map, axis, n) ?? String(place(map, axis, n));
// What the rows and columns are: of a gate channels and places; of others the recording may tell.
const axis = (map) => (map.layer.kind === "gate" ? { q: "channel", k: "place" } : { q: "query", k: "key" });
const axisNames = () => (data.layers.every((layer) => layer.kind === "gate") ? { q: "channels", k: "places" } : { q: data.about.queries ?? "queries", k: data.about.keys ?? "keys" });
// In running text: query 5 'cat'; a piece keeps its own direction, in no known language.
function named(map, axis, n) {
  const text = piece(map, axis, n);
  return text === null ? [String(place(map, axis, n))] : [`${place(map, axis, n)} `, "‘", make("bdi", { lang: "" }, text), "’"];
}

const calls = (layer) => data.layers.filter((one) => one.name === layer.name && one.side === layer.side);
function layerName(layer) {
  const several = calls(layer).length > 1;
  const other = layer.side === "B" ? " of the other recording" : "";
  return layer.name + (several ? ` · call ${layer.call}` : "") + (layer.step ? ` · from ${layer.step}` : "") + other;
}
// Heads have the numbers that they have in the model, of which some may have been recorded.
const headName = (layer, head) => (layer.names ? layer.names[head] : head);
const mapName = (map) => layerName(map.layer) + (map.layer.kind === "gate" && map.layer.heads === 1 ? "" : `, head ${headName(map.layer, map.head)}`);

let waiting = false;
function schedule() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    draw();
  });
}

// Alters the state, keeps it within the map, remembers it in the address and draws.
function change(part) {
  const before = here();
  Object.assign(state, part);
  state.map = clamp(state.map, 0, maps.length - 1);
  const map = here();
  if (map !== before) {
    hover = null;
    if (map.q !== before.q || map.k !== before.k) state.view = null;
  }
  state.q = clamp(state.q, 0, Math.max(0, map.q - 1));
  state.k = clamp(state.k, 0, Math.max(0, map.k - 1));
  remember();
  schedule();
}

// The address is written a little later, once: a browser takes its time for it.
let remembering = 0;
function remember() {
  clearTimeout(remembering);
  remembering = setTimeout(writeAddress, 120);
}

function writeAddress() {
  const map = here();
  const parts = [`layer=${map.layer.number}`, `head=${map.head}`, `q=${state.q}`, `k=${state.k}`];
  if (state.tab !== usualTab) parts.push(`tab=${state.tab}`);
  if (state.scale !== "sqrt") parts.push(`scale=${state.scale}`);
  if (state.sort !== "order") parts.push(`sort=${state.sort}`);
  if (state.hide) parts.push("sinks=hidden");
  if (state.pinned) parts.push("pinned=1");
  if (state.against >= 0) parts.push(`against=${state.against}`);
  if (state.view) parts.push(`view=${state.view.map((n) => Math.round(n * 100) / 100).join(",")}`);
  const hash = "#" + parts.join("&");
  if (hash === location.hash) return;
  try {
    history.replaceState(null, "", hash);
  } catch {
    // a page inside a notebook has no address of its own
  }
}

// The state that an address names; what it does not name is as at the start. False when it names nothing on this page.
function recall() {
  clearTimeout(remembering);
  const found = new URLSearchParams(location.hash.slice(1));
  const whole = (name, most) => {
    const n = Number(found.get(name) ?? 0);
    return Number.isInteger(n) && n >= 0 && n < most ? n : null;
  };
  const layer = data.layers[whole("layer", data.layers.length) ?? -1];
  const head = layer ? whole("head", layer.heads) : null;
  const [q, k] = layer ? [whole("q", layer.q), whole("k", layer.k)] : [null, null];
  const view = (found.get("view") || "").split(",").map(Number);
  const one = (name, all, usual) => (all.includes(found.get(name)) ? found.get(name) : usual);
  Object.assign(state, {
    map: layer && head !== null ? layer.first + head : 0,
    q: q ?? 0,
    k: k ?? 0,
    tab: one("tab", tabs.map((tab) => tab.name), usualTab),
    scale: one("scale", Object.keys(SCALES), "sqrt"),
    sort: one("sort", Object.keys(SORTS), "order"),
    hide: found.get("sinks") === "hidden",
    pinned: found.get("pinned") === "1",
    against: found.has("against") ? whole("against", maps.length) ?? -1 : -1,
    view: view.length === 3 && view.every((n) => Number.isFinite(n)) ? view : null,
  });
  return location.hash.length < 2 || (layer !== undefined && head !== null && q !== null && k !== null);
}

// Moving about by keys; the same everywhere a map is drawn. True when the key meant something.
function walk(event) {
  if (event.altKey || event.metaKey) return false;
  const map = here();
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
  moved = true;
  change(step);
  return true;
}

// The map so many layers and heads further on, or the same where there is none.
function neighbour(map, down, across) {
  const layer = data.layers[map.layer.number + down];
  const head = map.head + across;
  if (!layer || head < 0 || head >= (across ? layer.heads : Infinity)) return map.n;
  return layer.first + Math.min(head, layer.heads - 1);
}
