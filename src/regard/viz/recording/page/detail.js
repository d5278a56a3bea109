// Beside the map: what the chosen query looks at most, in exact numbers; and what is known of the map itself.
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
const detail = make("section", { class: "card detail", "aria-label": "the chosen query" }, detailTitle, bestTable, rowFacts, mapFacts);

let ticket = 0; // of the newest drawing: an older one that comes late is dropped
let detailed = ""; // what the panel shows

async function drawDetail(mine) {
  const map = here();
  const { q } = point();
  const stamp = `${map.n}/${q}/${state.hide}/${look()}/${Boolean(facts.now(map.n))}`;
  if (stamp === detailed || !map.q || !map.k) return;
  const [list, whole] = [await best(map, q, 10), data.remote ? facts.now(map.n) : await known(map)];
  if (!data.remote) await veil(map);
  if (mine !== ticket) return;
  detailed = data.remote ? stamp : `${map.n}/${q}/${state.hide}/${look()}/true`;
  detailTitle.replaceChildren(map.layer.kind === "gate" ? "Channel " : "Query ", ...named(map, "q", q));
  const most = Math.max(...list.map(([w]) => Math.abs(w)), 1e-9);
  bestBody.replaceChildren(
    ...list.map(([w, j]) => {
      const bar = make("span", { class: "bar" });
      bar.style.width = `${(100 * Math.abs(w)) / most}%`;
      return make("tr", {}, make("th", { scope: "row" }, ...named(map, "k", j)), make("td", {}, number(w), bar));
    }),
  );
  const sum = list.reduce((all, [w]) => all + w, 0).toFixed(3);
  const parts = weighsChannels(map.layer) ? ["One weight for the whole channel: this gate knows no places."] : [list.length > 1 ? `These ${list.length} come to ${sum}.` : list.length ? "All others are nought." : "This query looks at nothing."];
  if (whole && map.entropy !== undefined) {
    const nats = (whole.spread[q] / 255) * map.spread;
    parts.push(`Its entropy is about ${nats.toFixed(2)} nats, as of ${Math.max(1, Math.exp(nats)).toFixed(1)} keys looked at alike.`);
    if (map.sinks.length) parts.push(`Sinks get ${whole.drained.reduce((sum, sink) => sum + sink[q], 0).toFixed(3)}${state.hide ? "; they are hidden and the rest divided by what is left." : "."}`);
  }
  rowFacts.textContent = parts.join(" ");
  describe(map);
}

const KINDS = { self: "self attention", cross: "cross attention", alignment: "alignment", gate: "gate", glimpse: "glimpse", hop: "memory hop" };
const counted = (n, one, many) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

function sizeOf(map) {
  if (weighsChannels(map.layer)) return `${counted(map.q, "channel", "channels")}, gate`;
  if (map.layer.kind === "gate") return `${counted(map.q, "channel", "channels")} by ${counted(map.k, "place", "places")}, gate`;
  return `${counted(map.q, "query", "queries")} by ${counted(map.k, "key", "keys")}, ${KINDS[map.layer.kind]}`;
}

function describe(map) {
  const { layer } = map;
  const rows = [
    ["map", sizeOf(map)],
    ["taken from", layer.how],
    ["certificate", layer.certificate === null ? "none: nothing could be checked" : `max |P·V − out| = ${layer.certificate}, at most ${layer.tolerance} is allowed`],
  ];
  if (map.entropy !== undefined) rows.push(["mean entropy", `${map.entropy.toFixed(2)} nats`]);
  if (map.sums && layer.kind !== "gate") rows.push(["rows sum to", map.sums[0] === map.sums[1] ? number(map.sums[0]) : `${number(map.sums[0])} to ${number(map.sums[1])}`]);
  const masked = veilNow(map)?.share;
  if (masked) rows.push(["masked", `${(100 * masked).toFixed(1)} % of all pairs`]);
  if (map.sinks.length) rows.push(["sinks", map.sinks.map((j) => short(map, "k", j)).join(", ")]);
  if (!data.remote) rows.push(["kept", kept(map)]);
  mapFacts.replaceChildren(...rows.map(([term, text]) => make("div", {}, make("dt", {}, term), make("dd", {}, make("bdi", {}, text)))));
}

function kept(map) {
  if (map.top >= map.k) return "every weight exactly (float32)";
  const exactly = `the ${map.top} greatest of each row exactly (float32)`;
  const level = map.levels[map.levels.length - 1];
  if (level === 0) return `${exactly}, every other as 255·√w in a byte, within 0.004·√w + 4·10⁻⁶`;
  return `${exactly}; for the rest the greatest of each ${2 ** level} × ${2 ** level} weights, as 255·√w in a byte`;
}

// What is pointed at, in words, spoken politely: not more often than one can listen.
const status = make("p", { id: "said", role: "status" });
let speaking = 0;
async function speak(mine) {
  const map = here();
  if (!map.q || !map.k) {
    status.textContent = "This map is empty.";
    return;
  }
  const { q, k } = point();
  const [found, covered] = [await weightAt(map, q, k), masks(await veil(map), map, q, k)];
  let other = null;
  if (state.tab === "difference" && state.against >= 0) other = await weightAt(maps[state.against], q, k);
  if (mine !== ticket) return;
  const names = axis(map);
  const to = weighsChannels(map.layer) ? [" "] : [` → ${names.k} `, ...named(map, "k", k), " "];
  const words = [`${names.q} `, ...named(map, "q", q), ...to];
  const rank = found.rank ? `, rank ${found.rank}` : data.remote ? "" : `, not among the first ${map.top}`;
  words.push(hidden(map, k) ? "is a hidden sink" : covered ? "is masked" : make("strong", {}, spoken(found)));
  if (other) words.push(` less ${spoken(other)}: `, make("strong", {}, number(found.w - other.w)));
  else if (!hidden(map, k) && !covered && map.k > 1) words.push(rank);
  if (state.pinned) words.push(" (pinned)");
  clearTimeout(speaking);
  const tell = () => status.replaceChildren(...words);
  if (hover) speaking = setTimeout(tell, 60);
  else tell();
}

const alarm = make("p", { class: "alarm", role: "alert" });
alarm.hidden = true;
function trouble(error) {
  alarm.hidden = false;
  alarm.textContent = `Something could not be shown: ${error.message || error}`;
}
