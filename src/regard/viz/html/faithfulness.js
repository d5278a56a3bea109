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

// A mark of its own for every method, at every few points of its curve and at other points than those of its neighbours.
const MARKS = ["M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0", "M-4,-4h8v8h-8z", "M0,-5l5,9h-10z", "M0,-5l5,5l-5,5l-5,-5z", "M0,5l5,-9h-10z", "M-5,-1h10v2h-10z", "M-1,-5h2v10h-2z", "M-4,-4l8,8M4,-4l-8,8"];
const mark = (n, x, y) =>
  draw("path", { d: MARKS[n % MARKS.length], transform: `translate(${x},${y})`, fill: paint(n), stroke: paint(n) });
const isMarked = (n, point, count) => point % Math.max(1, Math.ceil(count / 8)) === n % Math.max(1, Math.ceil(count / 8));

function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}


// The patches of a picture, the last tokens, tinted over it; the tokens before them are of no patch.
function patches(row, greatest) {
  const [rows, columns] = data.grid;
  const first = data.tokens.length - rows * columns;
  const cells = row.scores.slice(first).map((score, n) => {
    const strength = score / greatest;
    return draw("rect", {
      x: n % columns, y: Math.floor(n / columns), width: 1, height: 1,
      fill: `rgb(${divergingColour(strength)})`, opacity: 0.15 + 0.7 * Math.abs(strength),
    }, draw("title", {}, `${data.tokens[first + n]} ${score.toPrecision(3)}`));
  });
  const picture = data.image === null ? [] : [draw("image", { href: data.image, width: columns, height: rows, preserveAspectRatio: "none" })];
  const about = { viewBox: `0 0 ${columns} ${rows}`, role: "img", "aria-label": row.name, width: 240 };
  return draw("svg", about, ...picture, ...cells);
}

function tinted(row) {
  const greatest = largest(row.scores.map(Math.abs)) || 1;
  if (data.grid !== null) return [make("h2", {}, row.name), patches(row, greatest)];
  const chips = data.tokens.map((token, n) => {
    const tint = divergingColour(row.scores[n] / greatest);
    const chip = make("span", { class: "token", title: row.scores[n].toPrecision(3) }, make("span", { class: "isolated" }, label(token)));
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
  if (!data.agreement.length) return make("p", {}, `A single ${data.unit} has one order, so no rankings can be compared.`);
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
  const axis = draw("text", { x: x(0.5), y: height - 4, "text-anchor": "middle", "font-size": 12, fill: "var(--soft)" }, `${data.units} removed`);
  const lines = measured.map((row, n) =>
    draw("polyline", { points: points(row.curve).join(" "), fill: "none", stroke: paint(n), "stroke-width": 2, ...stroke(n) }));
  const marks = measured.flatMap((row, n) =>
    row.curve.flatMap((p, point) => (isMarked(n, point, row.curve.length) ? [mark(n, x(data.removed[point]), y(p))] : [])));
  const name = "the probability of the class against the share that is removed, by method";
  return draw(
    "svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name, width: "100%" },
    ...frame, draw("polygon", { points: band, fill: "var(--soft)", opacity: 0.25 }), ...lines, ...marks, axis,
  );
}

function key() {
  const swatch = (n) =>
    draw("svg", { width: 26, height: 10, "aria-hidden": "true" },
      draw("line", { x1: 0, x2: 26, y1: 5, y2: 5, stroke: paint(n), "stroke-width": 2, "stroke-dasharray": dash(n) }), mark(n, 13, 5));
  const band = draw("svg", { width: 26, height: 10, "aria-hidden": "true" }, draw("rect", { width: 26, height: 10, fill: "var(--soft)", opacity: 0.25 }));
  return make("div", { class: "legend" }, ...measured.flatMap((row, n) => [swatch(n), make("span", {}, row.name)]), band, make("span", {}, "random orders, 5 to 95 %"));
}

const card = (title, ...children) => make("section", { class: "card", "aria-label": title }, ...children);

function render() {
  document.getElementById("page").replaceChildren(
    make("header", {}, make("h1", { dir: "auto" }, data.title), make("p", { class: "note" }, data.verdict)),
    card(
      "input by method", ...data.rows.flatMap(tinted),
      make("p", { class: "hint" }, "Orange adds to the logit, violet takes away, pale does neither; the strongest tint is the greatest score of each method. Point at one for its score."),
    ),
    card(
      "deletion", make("h2", {}, `The probability while ${data.units} are removed, the highest-ranked first (${data.removal})`), key(), curves(),
      make("p", { class: "hint" }, "A faithful method falls faster than random orders. Comprehensiveness is the mean fall without the first of them, " +
        "sufficiency the mean fall with the first alone: high and low are faithful."),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "comprehensiveness and sufficiency" }, removalTable()),
    ),
    card(
      "agreement", make("h2", {}, "Agreement of rankings, Kendall's τ: 1 the same order, 0 unrelated, −1 reversed"),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "agreement of rankings" }, agreementTable()),
    ),
    card("notes", make("h2", {}, "Notes"), ...data.notes.map((text) => make("p", {}, text))),
    make("footer", {}, make("p", {}, "Inputs with parts removed are unlike those of the training: compare methods with random orders, not with zero.")),
  );
}
dark.addEventListener("change", render);
render();
