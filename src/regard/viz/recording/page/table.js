// The twin of the picture: a window of the weights as a real table, and as a file for a spreadsheet.
const TABLE = { rows: 16, columns: 12, wide: 76 };
const MOST_CELLS = 1_000_000;
const tableHead = make("thead");
const tableBody = make("tbody");
const tableCaption = make("caption");
const twin = make("table", { class: "twin" }, tableCaption, tableHead, tableBody);
const twinBox = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "weights as a table" }, twin);
const twinSave = make("button", { type: "button" }, "Download as CSV");
const twinNote = make("p", { class: "hint" });
let twinFrom = { y: 0, x: 0 };

async function drawTable(mine) {
  const map = here();
  const [rows, columns] = [Math.min(map.q, TABLE.rows), Math.min(map.k, clamp(Math.floor(twinBox.clientWidth / TABLE.wide) - 1, 2, TABLE.columns))];
  const follow = (old, at, count, all) => clamp(at < old ? at : at >= old + count ? at - count + 1 : old, 0, all - count);
  const { y, x } = { y: follow(twinFrom.y, state.q, rows, map.q), x: follow(twinFrom.x, state.k, columns, map.k) };
  const cells = await Promise.all(
    Array.from({ length: rows }, (_, r) => Promise.all(Array.from({ length: columns }, (_, c) => weightAt(map, y + r, x + c)))),
  );
  const covered = await veil(map);
  if (mine !== ticket) return;
  twinFrom = { y, x };
  const head = (axis, n, scope) => make("th", { scope }, make("bdi", { lang: "" }, short(map, axis, n)));
  tableHead.replaceChildren(make("tr", {}, make("th", { scope: "col" }, "query"), ...cells[0].map((_, c) => head("k", x + c, "col"))));
  tableBody.replaceChildren(
    ...cells.map((list, r) =>
      make("tr", {}, head("q", y + r, "row"), ...list.map((found, c) => {
        const words = masks(covered, map, y + r, x + c) ? "masked" : { exact: "", near: "≈", most: "≤" }[found.sure] + number(found.w);
        const cell = make("td", {}, words);
        if (y + r === state.q && x + c === state.k) cell.classList.add("at");
        return cell;
      })),
    ),
  );
  tableCaption.textContent = `${mapName(map)}: queries ${y} to ${y + rows - 1} of ${map.q}, keys ${x} to ${x + columns - 1} of ${map.k}`;
  twinNote.textContent = "The window follows the cursor: walk with the arrow keys." + (map.top >= map.k || data.remote ? "" : " ≈ is from a byte, ≤ is no more than that, all others are exact.");
}
twinBox.addEventListener("keydown", (event) => walk(event) && event.preventDefault());

// What the heat map shows now, one weight a line; nought is left out.
async function csv() {
  const map = here();
  const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
  const lines = ["query,query text,key,key text,weight,certainty"];
  const rows = Math.min(map.q, Math.max(1, Math.floor(MOST_CELLS / map.k)));
  const start = clamp(Math.floor(state.view ? state.view[0] : 0), 0, map.q - rows);
  for (let i = start; i < start + rows; i++) {
    const { weights, exact } = await row(map, i);
    const sure = new Set(exact ? [] : (await best(map, i, map.top)).map(([, j]) => j));
    for (let j = 0; j < map.k; j++) {
      if (weights[j] === 0) continue;
      const certain = exact || sure.has(j) || map.sinks.includes(j) ? "exact" : "near";
      lines.push([place(map, "q", i), quoted(short(map, "q", i)), j, quoted(short(map, "k", j)), weights[j], certain].join(","));
    }
  }
  return lines.join("\r\n") + "\r\n";
}
twinSave.addEventListener("click", async () => {
  const map = here();
  const address = URL.createObjectURL(new Blob(["\ufeff", await csv()], { type: "text/csv" }));
  make("a", { href: address, download: `${map.layer.name}.head${map.head}.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
});
