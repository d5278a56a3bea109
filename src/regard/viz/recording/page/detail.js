// Beside the map: the greatest weights of the selected query, exactly, and facts about the map.
const detailTitle = make("h2", { class: "big" });
const bestBody = make("tbody");
const bestTable = make(
  "table",
  { class: "best" },
  make("caption", {}, "greatest weights of this row, exact"),
  make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "key"), make("th", { scope: "col" }, "weight"))),
  bestBody,
);
const rowFacts = make("p", { class: "note" });
const mapFacts = make("dl", { class: "facts" });
const detail = make("section", { class: "card detail", "aria-label": "the selected query" }, detailTitle, bestTable, rowFacts, mapFacts);

let drawingNumber = 0; // of the newest drawing: a late result of an older one is dropped
let detailStamp = ""; // the state that the panel shows

async function drawDetail(drawing) {
  const map = currentMap();
  const { q } = point();
  const stamp = `${map.n}/${q}/${state.hide}/${colourKey()}/${Boolean(facts.peek(map.n))}`;
  if (stamp === detailStamp || !map.q || !map.k) return;
  const [list, statistics] = [await greatestWeights(map, q, 10), data.remote ? facts.peek(map.n) : await loadFacts(map)];
  if (!data.remote) await loadMask(map);
  if (drawing !== drawingNumber) return;
  detailStamp = data.remote ? stamp : `${map.n}/${q}/${state.hide}/${colourKey()}/true`;
  detailTitle.replaceChildren(`${kindOf(map).row[0].toUpperCase()}${kindOf(map).row.slice(1)} `, ...labelNodes(map, "q", q));
  const most = Math.max(...list.map(([w]) => Math.abs(w)), 1e-9);
  bestBody.replaceChildren(
    ...list.map(([w, j]) => {
      const bar = make("span", { class: "bar" });
      bar.style.width = `${(100 * Math.abs(w)) / most}%`;
      return make("tr", {}, make("th", { scope: "row" }, ...labelNodes(map, "k", j)), make("td", {}, number(w), bar));
    }),
  );
  const sum = list.reduce((all, [w]) => all + w, 0).toFixed(3);
  const parts = isChannelGate(map.layer) ? ["One weight for the whole channel: this gate has no positions."] : [list.length > 1 ? `The sum of these ${list.length} is ${sum}.` : list.length ? "All others are zero." : "All weights of this query are zero."];
  if (statistics && map.entropy !== undefined) {
    const nats = (statistics.spread[q] / 255) * map.spread;
    parts.push(`Its entropy is about ${nats.toFixed(2)} nats, as of ${Math.max(1, Math.exp(nats)).toFixed(1)} keys of equal weight.`);
    if (map.sinks.length) parts.push(`Sinks get ${statistics.sinkWeights.reduce((sum, sink) => sum + sink[q], 0).toFixed(3)}${state.hide ? "; they are hidden, and the other weights are divided by their sum." : "."}`);
  }
  rowFacts.textContent = parts.join(" ");
  describe(map);
}

const countText = (n, singular, plural) => `${n.toLocaleString("en")} ${n === 1 ? singular : plural}`;

function sizeOf(map) {
  if (isChannelGate(map.layer)) return `${countText(map.q, "channel", "channels")}, gate`;
  const kind = kindOf(map);
  return `${countText(map.q, kind.row, kind.rows)} by ${countText(map.k, kind.column, kind.columns)}, ${kind.label}`;
}

function describe(map) {
  const { layer } = map;
  const rows = [
    ["map", sizeOf(map)],
    ["captured from", layer.how],
    ["certificate", layer.certificate === null ? "none: nothing could be checked" : `max |P·V − out| = ${layer.certificate}, at most ${layer.tolerance} is allowed`],
  ];
  if (map.entropy !== undefined) rows.push(["mean entropy", `${map.entropy.toFixed(2)} nats`]);
  if (map.sums && kindOf(map).has_entropy) rows.push(["rows sum to", map.sums[0] === map.sums[1] ? number(map.sums[0]) : `${number(map.sums[0])} to ${number(map.sums[1])}`]);
  const masked = cachedMask(map)?.share;
  if (masked) rows.push(["masked", `${(100 * masked).toFixed(1)} % of all pairs`]);
  if (map.sinks.length) rows.push(["sinks", map.sinks.map((j) => shortLabel(map, "k", j)).join(", ")]);
  if (!data.remote) rows.push(["stored", storedText(map)]);
  mapFacts.replaceChildren(...rows.map(([term, text]) => make("div", {}, make("dt", {}, term), make("dd", {}, make("bdi", {}, text)))));
}

function storedText(map) {
  if (map.top >= map.k) return "every weight exactly (float32)";
  const exactly = `the ${map.top} greatest of each row exactly (float32)`;
  const level = map.levels[map.levels.length - 1];
  if (level === 0) return `${exactly}, every other as 255·√w in a byte, within 0.004·√w + 4·10⁻⁶`;
  return `${exactly}; for the rest the greatest of each ${2 ** level} × ${2 ** level} weights, as 255·√w in a byte`;
}

// The weight under the cursor in words; screen readers are not interrupted more often than every 60 ms.
const status = make("p", { id: "status", role: "status" });
let speaking = 0;
async function updateStatus(drawing) {
  const map = currentMap();
  if (!map.q || !map.k) {
    status.textContent = "This map is empty.";
    return;
  }
  const { q, k } = point();
  const [weight, isCovered] = [await weightAt(map, q, k), isMasked(await loadMask(map), map, q, k)];
  let other = null;
  if (state.tab === "difference" && state.against >= 0) other = await weightAt(maps[state.against], q, k);
  if (drawing !== drawingNumber) return;
  const names = axis(map);
  const to = isChannelGate(map.layer) ? [" "] : [` → ${names.k} `, ...labelNodes(map, "k", k), " "];
  const words = [`${names.q} `, ...labelNodes(map, "q", q), ...to];
  const rank = weight.rank ? `, rank ${weight.rank}` : data.remote ? "" : `, not among the first ${map.top}`;
  words.push(isHidden(map, k) ? "is a hidden sink" : isCovered ? "is masked" : make("strong", {}, weightText(weight)));
  if (other) words.push(` less ${weightText(other)}: `, make("strong", {}, number(weight.w - other.w)));
  else if (!isHidden(map, k) && !isCovered && map.k > 1) words.push(rank);
  if (state.pinned) words.push(" (pinned)");
  clearTimeout(speaking);
  const write = () => status.replaceChildren(...words);
  if (hover) speaking = setTimeout(write, 60);
  else write();
}

const errorMessage = make("p", { class: "alarm", role: "alert" });
errorMessage.hidden = true;
function showError(error) {
  errorMessage.hidden = false;
  errorMessage.textContent = `This could not be shown: ${error.message || error}`;
}
