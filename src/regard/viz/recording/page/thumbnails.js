// Thumbnails of all layers and heads, on one canvas that draws the visible ones: rows are layers, columns heads; sorted
// ones fill rows from left to right.
const SORTS = { order: "layer and head", entropy: "sharpest first", spread: "most spread first" };
const thumbnailCanvas = make("canvas", { class: "shots" });
const selectionFrame = make("div", { class: "selection" });
const ground = make("div", { class: "ground" }, thumbnailCanvas, selectionFrame);
const gallery = make(
  "div",
  { class: "gallery", tabindex: "0", role: "application", "aria-roledescription": "layers and heads", "aria-label": "layers and heads" },
  ground,
);
const sorting = make("select", { id: "sorting" }, ...Object.entries(SORTS).map(([value, name]) => make("option", { value }, name)));
const SHADES = { shared: "one scale for all", each: "each its own scale" };
const shading = make("select", { id: "shading" }, ...Object.entries(SHADES).map(([value, name]) => make("option", { value }, name)));
let layout = { side: 20, left: 0, across: 1, order: null, mode: "" };
let gallerySize = { wide: 300, high: 300, above: 0 }; // measured before anything changes, which avoids a second layout
let thumbnailStamp = ""; // the state that the canvas shows
let unpackedCount = 0; // layers whose thumbnails have been unpacked
function measureGallery() {
  gallerySize = { wide: gallery.clientWidth, high: gallery.clientHeight, above: gallery.scrollTop };
}

function sortedMaps() {
  const order = maps.map((map) => map.n);
  if (state.sort === "order") return order;
  const sign = state.sort === "entropy" ? 1 : -1;
  return order.sort((a, b) => sign * ((maps[a].entropy ?? 0) - (maps[b].entropy ?? 0)) || a - b);
}

// The weight of the last colour of a thumbnail: the greatest of all maps, so that thumbnails can be compared, or its own.
const sharedWeight = () => maps.reduce((most, map) => Math.max(most, greatestWeight(map)), 0);
const thumbnailWeight = (map) => (state.shades === "shared" ? sharedWeight() : greatestWeight(map));
const thumbnailPalette = (map) => palette(map.signed, thumbnailWeight(map) / map.scale);
const shadeKey = () => `${colourKey()}/${state.shades === "shared" ? sharedWeight() : "each"}`;
const summaryKind = (layer) => layer.name.split(" ")[0]; // mean or rollout
function galleryText() {
  const kinds = [...new Set(data.layers.filter((layer) => layer.summary).map(summaryKind))];
  const summaries = kinds.length ? ` Rows named ${kinds.join(" or ")} sum up the layers${kinds.includes("mean") ? ": a mean over heads per layer" : ""}.` : "";
  const sides = data.layers.some((layer) => layer.side === "B") ? " A is the recording, B the other one." : "";
  const corner = data.layers.every((layer) => layer.verified) ? "" : " A cut corner marks an unverified map.";
  const shades = state.shades === "shared" ? ` All share one scale: dark is none, bright ${number(sharedWeight())}, the greatest weight of all.` : " Each has its own scale: bright is its own greatest weight, so they cannot be compared.";
  return `Rows are layers, columns heads, counted from 0.${summaries}${sides}${shades}${corner}`;
}

const thumbnailCache = new RecentCache(64); // by layer and colours
const servedThumbnails = new Map(); // by map
function layerThumbnails(layer) {
  if (data.remote) return null;
  const bare = state.hide && data.bare[layer.stored] !== "-";
  const key = `${layer.number}/${bare}/${shadeKey()}`;
  const cached = thumbnailCache.peek(key);
  if (!cached) thumbnailCache.get(key, async () => {
    const bytes = await unpack((bare ? data.bare : data.thumbs)[layer.stored]);
    const [height, width] = [Math.min(48, layer.q), Math.min(48, layer.k)];
    return Array.from({ length: layer.heads }, (_, h) => {
      const map = maps[layer.first + h];
      return colourCells(bytes.subarray(h * height * width, (h + 1) * height * width), height, width, thumbnailPalette(map));
    });
  }).then(() => {
    unpackedCount++;
    schedule();
  });
  return cached;
}
function thumbnailOf(map) {
  if (!data.remote) return layerThumbnails(map.layer)?.[map.head];
  const cached = servedThumbnails.get(map.n);
  if (!cached) return null;
  const bare = state.hide && map.sinks.length;
  if (cached.colours !== shadeKey() + bare) {
    const [height, width] = [Math.min(48, map.q), Math.min(48, map.k)];
    Object.assign(cached, { colours: shadeKey() + bare, canvas: colourCells(bare ? cached.bare : cached.thumb, height, width, thumbnailPalette(map)) });
  }
  return cached.canvas;
}

// The name of a row: the number of the layer in its recording, A or B if there are two, or the kind of a summary.
const rowNames = data.layers.map((layer) => {
  const name = layer.summary ? summaryKind(layer) : String(data.layers.filter((other) => other.side === layer.side && !other.summary && other.number < layer.number).length);
  return data.layers.some((other) => other.side === "B") ? `${layer.side} ${name}` : name;
});
gallery.dataset.rows = rowNames.join(", ");
const rowMargin = Math.max(26, ...rowNames.map((name) => 8 + 6.5 * name.length));

function computeLayout() {
  const { wide } = gallerySize;
  const most = Math.max(...data.layers.map((layer) => layer.heads));
  const byLayer = state.sort === "order";
  const left = byLayer ? rowMargin : 0;
  const across = byLayer ? most : Math.max(1, Math.min(maps.length, Math.floor(wide / 44)));
  const side = clamp(Math.floor((wide - left) / across), 13, 72);
  const rows = byLayer ? data.layers.length : Math.ceil(maps.length / across);
  const mode = `${state.sort}/${maps.map((map) => map.entropy ?? 0).reduce((a, b) => a + b, 0)}`;
  layout = { side, left, across, rows, byLayer, mode, order: layout.mode === mode && layout.order ? layout.order : sortedMaps() };
  const [width, height] = [left + across * side + "px", rows * side + "px"];
  if (ground.style.height !== height || ground.style.width !== width) {
    Object.assign(ground.style, { width, height });
    gallerySize.high = gallery.clientHeight;
  }
}

// The row and column of a map in the gallery, and the map at a row and column.
function cellOf(map) {
  if (layout.byLayer) return [map.layer.number, map.head];
  const at = layout.order.indexOf(map.n);
  return [Math.floor(at / layout.across), at % layout.across];
}
function mapAt(row, column) {
  if (column < 0 || row < 0 || column >= layout.across) return null;
  if (!layout.byLayer) return maps[layout.order[row * layout.across + column]] || null;
  const layer = data.layers[row];
  return layer && column < layer.heads ? maps[layer.first + column] : null;
}

function drawThumbnails() {
  computeLayout();
  const { side, left, across, rows } = layout;
  const [above, height] = [gallerySize.above, Math.min(gallerySize.high, rows * side)];
  const [row, column] = cellOf(currentMap());
  selectionFrame.style.transform = `translate(${left + column * side}px, ${row * side}px)`;
  selectionFrame.style.width = selectionFrame.style.height = side - 1 + "px";
  gallery.setAttribute("aria-label", `${data.layers.length} layers, ${maps.length} heads; selected: ${mapName(currentMap())}`);
  const stamp = [layout.mode, side, above, height, shadeKey(), state.hide, unpackedCount, servedThumbnails.size].join();
  if (stamp === thumbnailStamp) return;
  thumbnailStamp = stamp;
  const pen = context(thumbnailCanvas, left + across * side, height);
  thumbnailCanvas.style.transform = `translateY(${above}px)`;
  const [soft, accent, line] = cssColours("--soft", "--accent", "--line");
  pen.clearRect(0, 0, left + across * side, height);
  pen.imageSmoothingEnabled = false;
  pen.font = `11px ${fontFamily}`;
  pen.textBaseline = "middle";
  for (let r = Math.floor(above / side); r * side < above + height && r < rows; r++) {
    const y = r * side - above;
    if (left) {
      pen.fillStyle = soft;
      pen.textAlign = "right";
      if (side >= 11) pen.fillText(rowNames[r], left - 6, y + side / 2);
    }
    for (let c = 0; c < across; c++) {
      const map = mapAt(r, c);
      if (!map) continue;
      const x = left + c * side;
      const canvas = thumbnailOf(map);
      if (canvas) pen.drawImage(canvas, x + 1, y + 1, side - 3, side - 3);
      pen.strokeStyle = line;
      pen.lineWidth = 1;
      pen.strokeRect(x + 0.5, y + 0.5, side - 2, side - 2);
      if (!map.layer.verified) drawUnverifiedMark(pen, x, y, side, accent);
    }
  }
}

// The mark of an unverified map: a cut corner.
function drawUnverifiedMark(pen, x, y, side, colour) {
  pen.fillStyle = colour;
  pen.beginPath();
  const size = clamp(side / 4, 5, 10);
  pen.moveTo(x + side - 1 - size, y);
  pen.lineTo(x + side - 1, y);
  pen.lineTo(x + side - 1, y + size);
  pen.fill();
}

function scrollToThumbnail() {
  const [row] = cellOf(currentMap());
  const [top, bottom] = [row * layout.side, (row + 1) * layout.side];
  if (top < gallery.scrollTop) gallery.scrollTop = top;
  else if (bottom > gallery.scrollTop + gallery.clientHeight) gallery.scrollTop = bottom - gallery.clientHeight;
}

const thumbnailAt = (event) => {
  const box = ground.getBoundingClientRect();
  return mapAt(Math.floor((event.clientY - box.top) / layout.side), Math.floor((event.clientX - box.left - layout.left) / layout.side));
};
ground.addEventListener("click", (event) => {
  const map = thumbnailAt(event);
  if (map) change({ map: map.n });
});
ground.addEventListener("pointermove", (event) => {
  const map = thumbnailAt(event);
  ground.title = map ? mapName(map) + (map.layer.verified ? "" : ", unverified") : "";
});
gallery.addEventListener("scroll", schedule);
gallery.addEventListener("keydown", (event) => {
  const [row, column] = cellOf(currentMap());
  const to = { ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1], Home: [row, 0], End: [row, layout.across - 1] }[event.key];
  if (to) {
    const map = mapAt(...to);
    if (map) change({ map: map.n });
    cursorMoved = true;
    scrollToThumbnail();
  } else if (!"[]{}".includes(event.key) || !moveByKey(event)) return;
  event.preventDefault();
});
sorting.addEventListener("change", () => change({ sort: sorting.value }));
shading.addEventListener("change", () => change({ shades: shading.value }));

// Fetches the thumbnails of a served recording one by one, the selected map first.
async function fetchThumbnails() {
  const remaining = new Set(maps);
  while (remaining.size) {
    const map = remaining.has(currentMap()) ? currentMap() : remaining.values().next().value;
    remaining.delete(map);
    try {
      await loadFacts(map);
      const answer = await (await fetchOk(`thumb/${map.block}`)).json();
      servedThumbnails.set(map.n, { thumb: await unpack(answer.thumb), bare: await unpack(answer.bare) });
    } catch (error) {
      showError(error);
    }
    schedule();
  }
}
