// A text tinted by attention: one line per head and query, or per head for self attention, whose queries are averaged.
// `drawMaps` takes maps as a service answers them: {name, kind, verified, queries, keys, weights}, weights[head][query][key].
const MAX_LINES = 64;
const chooser = make("select", { id: "chooser" });
const choice = make("div", { class: "choice" }, make("label", { for: "chooser" }, "Module"), chooser);
const lines = make("div", { id: "lines" });
const linesNote = make("p", { class: "hint" });
const attention = make("section", { class: "card", id: "attention", "aria-label": "attention" }, make("h2", {}, "Attention"), choice, lines, linesNote);
let maps = [];

function mean(rows) {
  return rows[0].map((_, k) => rows.reduce((sum, row) => sum + row[k], 0) / rows.length);
}

// [[title, weights], …]
function linesOf({ kind, queries, weights }) {
  return weights.flatMap((rows, h) => {
    const head = weights.length > 1 ? [`head ${h + 1}`] : [];
    if (kind === "self") return [[head.join(), mean(rows)]];
    const query = (q) => (rows.length === 1 ? [] : queries ? [label(queries[q])] : [`query ${q + 1}`]);
    return rows.map((row, q) => [[...head, ...query(q)].join(", "), row]);
  });
}

function tintedToken(token, weight, most) {
  const tint = colour(most > 0 ? weight / most : 0);
  const figure = weight < 0.005 ? "" : weight >= 0.995 ? "1" : weight.toFixed(2).slice(1);
  const chip = make("span", { class: "token", title: exact(weight) }, make("span", {}, label(token)), make("small", {}, figure));
  Object.assign(chip.style, { backgroundColor: `rgb(${tint})`, color: ink(tint) });
  return chip;
}

function drawLines() {
  const map = maps[Number(chooser.value)];
  if (!map) return;
  const all = linesOf(map);
  lines.replaceChildren(
    ...all.slice(0, MAX_LINES).flatMap(([title, weights]) => {
      const name = title || "attention";
      const row = make("div", { class: "tokens", role: "group", tabindex: "0", "aria-label": name, dir: "auto", lang: "" });
      row.append(...map.keys.map((token, k) => tintedToken(token, weights[k], largest(weights))));
      return title ? [make("h3", {}, title), row] : [row];
    }),
  );
  linesNote.textContent =
    (map.kind === "self" ? "The attention that each token receives, averaged over all tokens. " : "") +
    "Dark: none, bright: the greatest weight of the line." +
    (map.verified ? "" : " These weights are not verified.") +
    (all.length > MAX_LINES ? ` The first ${MAX_LINES} of ${all.length} lines are shown.` : "");
}

function drawMaps(list) {
  const before = maps[Number(chooser.value)]?.name;
  maps = list;
  attention.hidden = !maps.length;
  choice.hidden = maps.length < 2;
  chooser.replaceChildren(...maps.map((map, n) => make("option", { value: n }, `${map.name} (${map.kind})${map.verified ? "" : ", unverified"}`)));
  chooser.value = String(Math.max(0, maps.findIndex((map) => map.name === before)));
  drawLines();
}
chooser.addEventListener("change", drawLines);
dark.addEventListener("change", drawLines);
