// The faithfulness of attributions: the text tinted by each method, the agreement of methods, deletion curves.
const SVG = "http://www.w3.org/2000/svg";
// Okabe and Ito (2008), for colour-blind readers; dashes change when the colours are used up.
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];
const measured = data.rows.filter((row) => row.comprehensiveness !== null);
const paint = (n) => COLOURS[n % COLOURS.length];
const dash = (n) => (n < COLOURS.length ? "none" : "5 3");

// Curves that coincide share one line: each has a dash of its own colour in turn.
const SAME = 0.01, DASH = 6;
const isSame = (a, b) => a.curve.every((p, n) => Math.abs(p - b.curve[n]) < SAME);
function stroke(n) {
  const same = measured.map((row, m) => m).filter((m) => isSame(measured[n], measured[m]));
  if (same.length < 2) return { "stroke-dasharray": dash(n) };
  return { "stroke-dasharray": `${DASH} ${DASH * (same.length - 1)}`, "stroke-dashoffset": -DASH * same.indexOf(n) };
}

function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}


function tinted(row) {
  const greatest = largest(row.scores.map(Math.abs)) || 1;
  const chips = data.tokens.map((token, n) => {
    const tint = divergingColour(row.scores[n] / greatest);
    const chip = make("span", { class: "token", title: row.scores[n].toPrecision(3) }, make("bdi", {}, label(token)));
    Object.assign(chip.style, { backgroundColor: `rgb(${tint})`, color: ink(tint), cursor: "default" });
    return chip;
  });
  const name = make("h2", {}, row.name);
  return [name, make("div", { class: "tokens", dir: "auto", lang: "", role: "group", "aria-label": row.name }, ...chips)];
}

function cellOf(value) {
  const tint = divergingColour(value);
  const cell = make("td", {}, value.toFixed(2));
  Object.assign(cell.style, { backgroundColor: `rgb(${tint})`, color: ink(tint), textAlign: "end", padding: "0.2rem 0.6rem" });
  return cell;
}

function agreementTable() {
  if (!data.agreement.length) return make("p", {}, "A text of one word has one order, so no rankings can be compared.");
  const names = measured.map((row) => row.name);
  const head = make("thead", {}, make("tr", {}, make("td", {}), ...names.map((name) => make("th", { scope: "col" }, name))));
  const rows = names.map((name, i) => make("tr", {}, make("th", { scope: "row" }, name), ...data.agreement[i].map(cellOf)));
  return make("table", {}, head, make("tbody", {}, ...rows));
}

function removalTable() {
  const heads = ["method", "comprehensiveness", "sufficiency"].map((name) => make("th", { scope: "col" }, name));
  const rows = [...measured, data.random].map((row) =>
    make("tr", {}, make("th", { scope: "row" }, row.name), make("td", {}, fixed(row.comprehensiveness)), make("td", {}, fixed(row.sufficiency))));
  return make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
}

function curves() {
  const [width, height, left, below] = [640, 300, 48, 36];
  const x = (share) => left + share * (width - left - 24);
  const y = (p) => 10 + (1 - p) * (height - below - 10);
  const points = (values) => values.map((p, n) => `${x(data.removed[n])},${y(p)}`);
  const frame = [0, 0.25, 0.5, 0.75, 1].flatMap((value) => [
    draw("line", { x1: x(0), x2: x(1), y1: y(value), y2: y(value), stroke: "var(--line)" }),
    draw("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end", "font-size": 12, fill: "var(--soft)" }, value.toFixed(2)),
    draw("text", { x: x(value), y: height - below + 16, "text-anchor": "middle", "font-size": 12, fill: "var(--soft)" }, `${100 * value} %`),
  ]);
  const band = [...points(data.band[1]), ...points(data.band[0]).reverse()].join(" ");
  const axis = draw("text", { x: x(0.5), y: height - 4, "text-anchor": "middle", "font-size": 12, fill: "var(--soft)" }, "words removed");
  const lines = measured.map((row, n) =>
    draw("polyline", { points: points(row.curve).join(" "), fill: "none", stroke: paint(n), "stroke-width": 2, ...stroke(n) }));
  const name = "the probability of the class against the share of words that are removed, by method";
  return draw(
    "svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name, width: "100%" },
    ...frame, draw("polygon", { points: band, fill: "var(--soft)", opacity: 0.25 }), ...lines, axis,
  );
}

function key() {
  const swatch = (n) =>
    draw("svg", { width: 26, height: 10, "aria-hidden": "true" },
      draw("line", { x1: 0, x2: 26, y1: 5, y2: 5, stroke: paint(n), "stroke-width": 2, "stroke-dasharray": dash(n) }));
  const band = draw("svg", { width: 26, height: 10, "aria-hidden": "true" }, draw("rect", { width: 26, height: 10, fill: "var(--soft)", opacity: 0.25 }));
  return make("div", { class: "legend" }, ...measured.flatMap((row, n) => [swatch(n), make("span", {}, row.name)]), band, make("span", {}, "random orders, 5 to 95 %"));
}

const card = (title, ...children) => make("section", { class: "card", "aria-label": title }, ...children);

function render() {
  document.getElementById("page").replaceChildren(
    make("header", {}, make("h1", { dir: "auto" }, data.title), make("p", { class: "note" }, data.verdict)),
    card(
      "text by method", ...data.rows.flatMap(tinted),
      make("p", { class: "hint" }, "Orange adds to the logit, violet takes away, pale does neither; the strongest tint is the greatest score of each method. Point at a token for its score."),
    ),
    card(
      "deletion", make("h2", {}, `The probability while words are removed, the highest-ranked first (${data.removal})`), key(), curves(),
      make("p", { class: "hint" }, "A faithful method falls faster than random orders. Comprehensiveness is the mean fall without the first words, " +
        "sufficiency the mean fall with the first words alone: high and low are faithful."),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "comprehensiveness and sufficiency" }, removalTable()),
    ),
    card(
      "agreement", make("h2", {}, "Agreement of rankings, Kendall's τ: 1 the same order, 0 unrelated, −1 reversed"),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "agreement of rankings" }, agreementTable()),
    ),
    card("notes", make("h2", {}, "Notes"), ...data.notes.map((text) => make("p", {}, text))),
    make("footer", {}, make("p", {}, "Texts with words removed are unlike those of the training: compare methods with random orders, not with zero.")),
  );
}
dark.addEventListener("change", render);
render();
