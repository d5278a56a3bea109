// What a map may not look at: hatched in the heat map, and "masked" in words, so that it is never taken for a weight of
// nought. A veil has the first key of each row and the one behind its last, or a bit a pair.
const HATCH = 6; // pixels from line to line
const veilCache = new Recent(64);
// null: nothing is masked, or nothing is known of it.
const veil = (map) =>
  veilCache.get(data.remote ? map.n : (map.mask ?? -1), async () => {
    const told = data.remote ? await (await fetched(`mask/${map.n}`)).json() : (data.masks[map.mask] ?? null);
    if (!told || told.kind === "share") return told;
    const bytes = await unpacked(told.chunk);
    if (told.kind === "bits") return { share: told.share, bits: bytes };
    return { share: told.share, starts: joined(bytes.subarray(0, 4 * map.q), 4, Uint32Array), ends: joined(bytes.subarray(4 * map.q), 4, Uint32Array) };
  });
const veilNow = (map) => veilCache.now(data.remote ? map.n : (map.mask ?? -1));

function masks(found, map, i, j) {
  if (found?.starts) return j < found.starts[i] || j >= found.ends[i];
  const n = i * map.k + j;
  return Boolean(found?.bits) && !(found.bits[n >> 3] & (128 >> (n & 7)));
}

// The keys from `first` to `last` that none of `count` rows may look at, as [from, to].
function gaps(found, map, i, count, first, last) {
  const rows = Math.min(map.q, i + count);
  if (found.starts) {
    let [low, high] = [map.k, 0];
    for (let r = i; r < rows; r++) {
      if (found.ends[r] <= found.starts[r]) continue;
      low = Math.min(low, found.starts[r]);
      high = Math.max(high, found.ends[r]);
    }
    return high ? [[first, Math.min(low, last)], [Math.max(high, first), last]].filter(([a, b]) => a < b) : [[first, last]];
  }
  const list = [];
  for (let j = first, from = -1; j <= last; j++) {
    let all = j < last;
    for (let r = i; all && r < rows; r++) all = masks(found, map, r, j);
    if (all && from < 0) from = j;
    if (!all && from >= 0) {
      list.push([from, j]);
      from = -1;
    }
  }
  return list;
}

let hatching = { look: "", pattern: null };
function hatch(pen) {
  if (hatching.look !== look()) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = HATCH;
    const inner = tile.getContext("2d");
    const [card, line] = paints("--card", "--line-strong");
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
    hatching = { look: look(), pattern: pen.createPattern(tile, "repeat") };
  }
  return hatching.pattern;
}

// Over the cells of a heat map; `at` is where they are. Rows that share a pixel are hatched where all of them are.
function drawVeil(pen, at) {
  const { map, left, top, sx, sy, y, x, across, down } = at;
  const found = veilNow(map);
  if (found === undefined) veil(map).then(schedule, trouble);
  if (!found || found.kind === "share") return;
  pen.fillStyle = hatch(pen);
  const count = Math.max(1, Math.floor(1 / sy));
  const [first, last] = [Math.floor(x), Math.min(map.k, Math.ceil(x + across / sx))];
  for (let i = Math.floor(y); i < Math.min(map.q, y + down / sy); i += count)
    for (const [from, to] of gaps(found, map, i, count, first, last)) {
      const [a, b] = [left + (from - x) * sx, top + (i - y) * sy];
      pen.fillRect(a, b, (to - from) * sx, Math.min(count, map.q - i) * sy);
    }
}
