// Every layer and head as a small picture, on one canvas that draws what is in sight: rows are layers, columns heads;
// sorted, they run on from left to right.
const SORTS = { order: "layer and head", entropy: "sharpest first", spread: "most spread first" };
const shots = make("canvas", { class: "shots" });
const chosenFrame = make("div", { class: "chosen" });
const ground = make("div", { class: "ground" }, shots, chosenFrame);
const gallery = make(
  "div",
  { class: "gallery", tabindex: "0", role: "application", "aria-roledescription": "layers and heads", "aria-label": "layers and heads" },
  ground,
);
const sorting = make("select", { id: "sorting" }, ...Object.entries(SORTS).map(([value, name]) => make("option", { value }, name)));
let small = { side: 20, left: 0, across: 1, order: null, mode: "" };
let sizes = { wide: 300, high: 300, above: 0 }; // of the gallery, measured before anything is changed: that costs least
let shotsDrawn = ""; // what the canvas shows
let arrived = 0; // pictures that have been unpacked
function measureThumbs() {
  sizes = { wide: gallery.clientWidth, high: gallery.clientHeight, above: gallery.scrollTop };
}

function ordered() {
  const order = maps.map((map) => map.n);
  if (state.sort === "order") return order;
  const sign = state.sort === "entropy" ? 1 : -1;
  return order.sort((a, b) => sign * ((maps[a].entropy ?? 0) - (maps[b].entropy ?? 0)) || a - b);
}

const pictures = new Recent(64); // of layers
const served = new Map(); // thumbnails that a server has given
function picture(layer) {
  if (data.remote) return null;
  const bare = state.hide && data.bare[layer.number] !== "-";
  const key = `${layer.number}/${bare}/${look()}`;
  const found = pictures.now(key);
  if (!found) pictures.get(key, async () => {
    const bytes = await unpacked((bare ? data.bare : data.thumbs)[layer.number]);
    const [height, width] = [Math.min(48, layer.q), Math.min(48, layer.k)];
    return Array.from({ length: layer.heads }, (_, h) => {
      const map = maps[layer.first + h];
      return coloured(bytes.subarray(h * height * width, (h + 1) * height * width), height, width, shades(map.signed));
    });
  }).then(() => {
    arrived++;
    schedule();
  });
  return found;
}
function shot(map) {
  if (!data.remote) return picture(map.layer)?.[map.head];
  const found = served.get(map.n);
  if (!found) return null;
  const bare = state.hide && map.sinks.length;
  if (found.look !== look() + bare) {
    const [height, width] = [Math.min(48, map.q), Math.min(48, map.k)];
    Object.assign(found, { look: look() + bare, canvas: coloured(bare ? found.bare : found.thumb, height, width, shades(map.signed)) });
  }
  return found.canvas;
}

function layOut() {
  const { wide } = sizes;
  const most = Math.max(...data.layers.map((layer) => layer.heads));
  const byLayer = state.sort === "order";
  const left = byLayer ? 26 : 0;
  const across = byLayer ? most : Math.max(1, Math.min(maps.length, Math.floor(wide / 44)));
  const side = clamp(Math.floor((wide - left) / across), 13, 72);
  const rows = byLayer ? data.layers.length : Math.ceil(maps.length / across);
  const mode = `${state.sort}/${maps.map((map) => map.entropy ?? 0).reduce((a, b) => a + b, 0)}`;
  small = { side, left, across, rows, byLayer, mode, order: small.mode === mode && small.order ? small.order : ordered() };
  const [width, height] = [left + across * side + "px", rows * side + "px"];
  if (ground.style.height !== height || ground.style.width !== width) {
    Object.assign(ground.style, { width, height });
    sizes.high = gallery.clientHeight;
  }
}

// Where a map is drawn, and which map is drawn somewhere.
function spot(map) {
  if (small.byLayer) return [map.layer.number, map.head];
  const at = small.order.indexOf(map.n);
  return [Math.floor(at / small.across), at % small.across];
}
function under(row, column) {
  if (column < 0 || row < 0 || column >= small.across) return null;
  if (!small.byLayer) return maps[small.order[row * small.across + column]] || null;
  const layer = data.layers[row];
  return layer && column < layer.heads ? maps[layer.first + column] : null;
}

function drawThumbs() {
  layOut();
  const { side, left, across, rows } = small;
  const [above, height] = [sizes.above, Math.min(sizes.high, rows * side)];
  const [row, column] = spot(here());
  chosenFrame.style.transform = `translate(${left + column * side}px, ${row * side}px)`;
  chosenFrame.style.width = chosenFrame.style.height = side - 1 + "px";
  gallery.setAttribute("aria-label", `${data.layers.length} layers, ${maps.length} heads; chosen: ${mapName(here())}`);
  const stamp = [small.mode, side, above, height, look(), state.hide, arrived, served.size].join();
  if (stamp === shotsDrawn) return;
  shotsDrawn = stamp;
  const pen = context(shots, left + across * side, height);
  shots.style.transform = `translateY(${above}px)`;
  const [soft, accent, line] = paints("--soft", "--accent", "--line");
  pen.clearRect(0, 0, left + across * side, height);
  pen.imageSmoothingEnabled = false;
  pen.font = `11px ${fontFamily}`;
  pen.textBaseline = "middle";
  for (let r = Math.floor(above / side); r * side < above + height && r < rows; r++) {
    const y = r * side - above;
    if (left) {
      pen.fillStyle = soft;
      pen.textAlign = "right";
      if (side >= 11) pen.fillText(String(r), left - 6, y + side / 2);
    }
    for (let c = 0; c < across; c++) {
      const map = under(r, c);
      if (!map) continue;
      const x = left + c * side;
      const canvas = shot(map);
      if (canvas) pen.drawImage(canvas, x + 1, y + 1, side - 3, side - 3);
      pen.strokeStyle = line;
      pen.lineWidth = 1;
      pen.strokeRect(x + 0.5, y + 0.5, side - 2, side - 2);
      if (!map.layer.verified) cross(pen, x, y, side, accent);
    }
  }
}

// The mark of a map that nothing vouches for: a corner cut off.
function cross(pen, x, y, side, colour) {
  pen.fillStyle = colour;
  pen.beginPath();
  const size = clamp(side / 4, 5, 10);
  pen.moveTo(x + side - 1 - size, y);
  pen.lineTo(x + side - 1, y);
  pen.lineTo(x + side - 1, y + size);
  pen.fill();
}

function thumbInSight() {
  const [row] = spot(here());
  const [top, bottom] = [row * small.side, (row + 1) * small.side];
  if (top < gallery.scrollTop) gallery.scrollTop = top;
  else if (bottom > gallery.scrollTop + gallery.clientHeight) gallery.scrollTop = bottom - gallery.clientHeight;
}

const thumbAt = (event) => {
  const box = ground.getBoundingClientRect();
  return under(Math.floor((event.clientY - box.top) / small.side), Math.floor((event.clientX - box.left - small.left) / small.side));
};
ground.addEventListener("click", (event) => {
  const map = thumbAt(event);
  if (map) change({ map: map.n });
});
ground.addEventListener("pointermove", (event) => {
  const map = thumbAt(event);
  ground.title = map ? mapName(map) + (map.layer.verified ? "" : ", unverified") : "";
});
gallery.addEventListener("scroll", schedule);
gallery.addEventListener("keydown", (event) => {
  const [row, column] = spot(here());
  const to = { ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1], Home: [row, 0], End: [row, small.across - 1] }[event.key];
  if (to) {
    const map = under(...to);
    if (map) change({ map: map.n });
    moved = true;
    thumbInSight();
  } else if (!"[]{}".includes(event.key) || !walk(event)) return;
  event.preventDefault();
});
sorting.addEventListener("change", () => change({ sort: sorting.value }));

// A served recording tells its thumbnails one by one, the chosen map first.
async function gatherThumbs() {
  const left = new Set(maps);
  while (left.size) {
    const map = left.has(here()) ? here() : left.values().next().value;
    left.delete(map);
    try {
      await known(map);
      const answer = await (await fetched(`thumb/${map.n}`)).json();
      served.set(map.n, { thumb: await unpacked(answer.thumb), bare: await unpacked(answer.bare) });
    } catch (error) {
      trouble(error);
    }
    schedule();
  }
}
