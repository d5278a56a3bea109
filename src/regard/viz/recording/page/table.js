// A window of the weights as an HTML table, and as a CSV file.
const TABLE = { rows: 16, columns: 12, wide: 76 };
const MAX_CSV_CELLS = 1_000_000;
const tableHead = make("thead");
const tableBody = make("tbody");
const tableCaption = make("caption");
const weightTable = make("table", { class: "weights" }, tableCaption, tableHead, tableBody);
const tableBox = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "weights as a table" }, weightTable);
const csvButton = make("button", { type: "button" }, "Download as CSV");
const tableNote = make("p", { class: "hint" });
let tableWindow = { y: 0, x: 0 };

async function drawTable(drawing) {
  const map = currentMap();
  const [rows, columns] = [Math.min(map.q, TABLE.rows), Math.min(map.k, clamp(Math.floor(tableBox.clientWidth / TABLE.wide) - 1, 2, TABLE.columns))];
  const follow = (old, at, count, all) => clamp(at < old ? at : at >= old + count ? at - count + 1 : old, 0, all - count);
  const { y, x } = { y: follow(tableWindow.y, state.q, rows, map.q), x: follow(tableWindow.x, state.k, columns, map.k) };
  const cells = await Promise.all(
    Array.from({ length: rows }, (_, r) => Promise.all(Array.from({ length: columns }, (_, c) => weightAt(map, y + r, x + c)))),
  );
  const mask = await loadMask(map);
  if (drawing !== drawingNumber) return;
  tableWindow = { y, x };
  const head = (axis, n, scope) => make("th", { scope }, make("bdi", { lang: "" }, shortLabel(map, axis, n)));
  tableHead.replaceChildren(make("tr", {}, make("th", { scope: "col" }, "query"), ...cells[0].map((_, c) => head("k", x + c, "col"))));
  tableBody.replaceChildren(
    ...cells.map((list, r) =>
      make("tr", {}, head("q", y + r, "row"), ...list.map((weight, c) => {
        const words = isMasked(mask, map, y + r, x + c) ? "masked" : { exact: "", near: "≈", most: "≤" }[weight.certainty] + number(weight.w);
        const cell = make("td", {}, words);
        if (y + r === state.q && x + c === state.k) cell.classList.add("at");
        return cell;
      })),
    ),
  );
  tableCaption.textContent = `${mapName(map)}: queries ${y} to ${y + rows - 1} of ${map.q}, keys ${x} to ${x + columns - 1} of ${map.k}`;
  tableNote.textContent = "The window follows the cursor: move it with the arrow keys." + (map.top >= map.k || data.remote ? "" : " ≈ is from a byte, ≤ is no more than that, all others are exact.");
}
tableBox.addEventListener("keydown", (event) => moveByKey(event) && event.preventDefault());

// The weights of the visible rows as CSV, one weight per line; zeros are left out.
async function csv() {
  const map = currentMap();
  const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
  const lines = ["query,query text,key,key text,weight,certainty"];
  const rows = Math.min(map.q, Math.max(1, Math.floor(MAX_CSV_CELLS / map.k)));
  const start = clamp(Math.floor(state.view ? state.view[0] : 0), 0, map.q - rows);
  for (let i = start; i < start + rows; i++) {
    const { weights, exact } = await row(map, i);
    const exactKeys = new Set(exact ? [] : (await greatestWeights(map, i, map.top)).map(([, j]) => j));
    for (let j = 0; j < map.k; j++) {
      if (weights[j] === 0) continue;
      const certainty = exact || exactKeys.has(j) || map.sinks.includes(j) ? "exact" : "near";
      lines.push([positionOf(map, "q", i), quoted(shortLabel(map, "q", i)), j, quoted(shortLabel(map, "k", j)), weights[j], certainty].join(","));
    }
  }
  return lines.join("\r\n") + "\r\n";
}
csvButton.addEventListener("click", async () => {
  const map = currentMap();
  const address = URL.createObjectURL(new Blob(["\ufeff", await csv()], { type: "text/csv" }));
  make("a", { href: address, download: `${map.layer.name}.head${map.head}.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
});
