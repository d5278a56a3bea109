// Masked pairs: hatched in the heat map and called "masked" in words, so that they differ from weights of zero. A mask
// holds the first allowed key of each row and the one behind its last, or one bit per pair.
const HATCH = 6; // pixels from line to line
const maskCache = new RecentCache(64);
// null: nothing is masked, or no mask is known.
const loadMask = (map) =>
  maskCache.get(data.remote ? map.n : (map.mask ?? -1), async () => {
    const encoded = data.remote ? await (await fetchOk(`mask/${map.block}`)).json() : (data.masks[map.mask] ?? null);
    if (!encoded || encoded.kind === "share") return encoded;
    const bytes = await unpack(encoded.chunk);
    if (encoded.kind === "bits") return { share: encoded.share, bits: bytes };
    return { share: encoded.share, starts: joinPlanes(bytes.subarray(0, 4 * map.q), 4, Uint32Array), ends: joinPlanes(bytes.subarray(4 * map.q), 4, Uint32Array) };
  });
const cachedMask = (map) => maskCache.peek(data.remote ? map.n : (map.mask ?? -1));

function isMasked(mask, map, i, j) {
  if (mask?.starts) return j < mask.starts[i] || j >= mask.ends[i];
  const n = i * map.k + j;
  return Boolean(mask?.bits) && !(mask.bits[n >> 3] & (128 >> (n & 7)));
}

// The keys from `first` to `last` that none of `count` rows may attend to, as [from, to].
function gaps(mask, map, i, count, first, last) {
  const rows = Math.min(map.q, i + count);
  if (mask.starts) {
    let [low, high] = [map.k, 0];
    for (let r = i; r < rows; r++) {
      if (mask.ends[r] <= mask.starts[r]) continue;
      low = Math.min(low, mask.starts[r]);
      high = Math.max(high, mask.ends[r]);
    }
    return high ? [[first, Math.min(low, last)], [Math.max(high, first), last]].filter(([a, b]) => a < b) : [[first, last]];
  }
  const list = [];
  for (let j = first, from = -1; j <= last; j++) {
    let all = j < last;
    for (let r = i; all && r < rows; r++) all = isMasked(mask, map, r, j);
    if (all && from < 0) from = j;
    if (!all && from >= 0) {
      list.push([from, j]);
      from = -1;
    }
  }
  return list;
}

let hatchCache = { colours: "", pattern: null };
function hatch(pen) {
  if (hatchCache.colours !== colourKey()) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = HATCH;
    const inner = tile.getContext("2d");
    const [card, line] = cssColours("--card", "--line-strong");
    inner.fillStyle = card;
    inner.fillRect(0, 0, HATCH, HATCH);
    inner.strokeStyle = line;
    inner.globalAlpha = 0.5;
    inner.beginPath();
    for (const n of [-HATCH, 0, HATCH]) {
      inner.moveTo(n, HATCH);
      inner.lineTo(n + HATCH, 0);
    }
    inner.stroke();
    hatchCache = { colours: colourKey(), pattern: pen.createPattern(tile, "repeat") };
  }
  return hatchCache.pattern;
}

// Hatches masked cells of a heat map with geometry `at`; rows that share a pixel only where all of them are masked.
function drawMask(pen, at) {
  const { map, left, top, sx, sy, y, x, across, down } = at;
  const mask = cachedMask(map);
  if (mask === undefined) loadMask(map).then(schedule, showError);
  if (!mask || mask.kind === "share") return;
  pen.fillStyle = hatch(pen);
  const count = Math.max(1, Math.floor(1 / sy));
  const [first, last] = [Math.floor(x), Math.min(map.k, Math.ceil(x + across / sx))];
  for (let i = Math.floor(y); i < Math.min(map.q, y + down / sy); i += count)
    for (const [from, to] of gaps(mask, map, i, count, first, last)) {
      const [a, b] = [left + (from - x) * sx, top + (i - y) * sy];
      pen.fillRect(a, b, (to - from) * sx, Math.min(count, map.q - i) * sy);
    }
}
