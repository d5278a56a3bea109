// The errors of a model: tables, and a card per mistake with the attention behind it.
const page = document.getElementById("page");
const heading = (text) => make("h2", {}, text);

function drawTable({ title, headings, rows, note }) {
  const head = make("tr", {}, ...headings.map((name) => make("th", { scope: "col" }, name)));
  const body = rows.map(([first, ...cells]) => make("tr", {}, make("th", { scope: "row" }, first), ...cells.map((cell) => make("td", {}, cell))));
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
  const frame = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, table);
  return make("section", { class: "card" }, heading(title), ...(note ? [make("p", { class: "note" }, note)] : []), frame);
}

function chip(token, weight, most) {
  const tint = colour(most > 0 ? weight / most : 0);
  const element = make("span", { class: "token", title: exact(weight) }, make("span", {}, token));
  Object.assign(element.style, { backgroundColor: `rgb(${tint})`, color: ink(tint) });
  return element;
}

// One line of tokens per token of the output, or one for the whole output.
function drawAttention({ keys, queries, weights }) {
  const lines = weights.map((row, n) => {
    const line = make("div", { class: "tokens", dir: "auto", lang: "" }, ...keys.map((token, k) => chip(token, row[k], largest(row))));
    return queries ? make("div", {}, make("h3", {}, make("bdi", { lang: "" }, queries[n])), line) : line;
  });
  return make("details", {}, make("summary", {}, "Attention"), make("p", { class: "hint" }, COLOUR_RULE), ...lines);
}

function drawCard(card) {
  const percent = (share) => (share === null ? "" : ` (${(100 * share).toFixed(1)} %)`);
  const lines = [
    ["Input", card.input],
    ["Right", card.target + percent(card.of_target)],
    ["Model", card.output + percent(card.probability)],
    ...(card.missed.length ? [["Missed", card.missed.join("; ")]] : []),
    ...(card.wrong.length ? [["Wrong", card.wrong.join("; ")]] : []),
    ...(data.kind === "text" ? [["chrF", card.score.toFixed(1)]] : []),
    ...(card.source ? [["File", card.source]] : []),
  ];
  const texts = make("div", { class: "texts" });
  for (const [name, text] of lines) texts.append(make("h2", {}, name), make("div", { class: "text", dir: "auto", lang: "", tabindex: "0" }, text));
  return make("section", { class: "card" }, texts, ...(card.attention ? [drawAttention(card.attention)] : []));
}

page.append(
  make("h1", {}, data.title),
  make("p", { class: "note" }, data.said),
  ...data.tables.map(drawTable),
  make("h2", {}, data.kind === "text" ? "Lowest chrF" : "Mistakes, the most confident first"),
  ...data.cards.map(drawCard),
);
