// An episode: a column per move with its picture, its action, its reward and its value; below, a row per move with the
// weights of the moves that it attended to.
const moves = data.seen.map((_, t) => t);

function picture(frame, t) {
  const [height, width] = [frame.length, frame[0].length];
  const scale = Math.max(1, Math.floor(60 / Math.max(height, width)));
  const canvas = make("canvas", { width: width * scale, height: height * scale, role: "img", "aria-label": data.seen[t] });
  const context = canvas.getContext("2d");
  frame.forEach((row, y) =>
    row.forEach((level, x) => {
      const grey = Math.round(255 * level);
      context.fillStyle = `rgb(${grey}, ${grey}, ${grey})`;
      context.fillRect(x * scale, y * scale, scale, scale);
    }),
  );
  return canvas;
}

const head = (text, scope) => make("th", { scope }, text);
const row = (name, cells) =>
  make("tr", {}, head(name, "row"), ...cells.map((cell) => make("td", {}, cell)));
const numbers = make("tr", {}, head("move", "row"), ...moves.map((t) => head(String(t), "col")));

const episode = make(
  "table",
  {},
  make("thead", {}, numbers.cloneNode(true)),
  make(
    "tbody",
    {},
    row("sees", data.frames.map(picture)),
    row("", data.seen),
    row("does", data.actions),
    row("reward", data.rewards.map((reward) => (reward ? reward.toFixed(2) : ""))),
    row("value", data.values.map(fixed)),
    ...(data.attended.some(Boolean) ? [row("attends to", data.attended)] : []),
  ),
);

function weights() {
  const body = make("tbody");
  const most = largest(data.weights.flat()) || 1;
  data.weights.forEach((line, t) => {
    const cells = line.map((weight, n) => {
      const cell = make("td", {}, n <= t ? fixed(weight) : "");
      if (n <= t) {
        const rgb = colour(weight / most);
        cell.style.backgroundColor = `rgb(${rgb})`;
        cell.style.color = ink(rgb);
      }
      return cell;
    });
    body.append(make("tr", {}, head(`${t} ${data.seen[t]}`, "row"), ...cells));
  });
  const heading = make("tr", {}, head("attends to move", "row"), ...moves.map((t) => head(String(t), "col")));
  return make("table", {}, make("thead", {}, heading), body);
}

const scroll = (name, table) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, table);
document.getElementById("page").append(
  make("header", {}, make("h1", {}, data.title)),
  make("section", { class: "card" }, make("h2", {}, "Episode"), scroll("the moves of the episode", episode)),
);
if (data.weights.length) {
  const attended = scroll("weights of the attended moves", weights());
  document.getElementById("page").append(make("section", { class: "card" }, make("h2", {}, "Attended moves"), make("p", { class: "hint" }, `Weights; ${COLOUR_RULE}.`), attended));
}
