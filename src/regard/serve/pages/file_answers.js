// Answers to all texts of a file, a line each or a column of a table, as a CSV file. The requests have the sizes that the service allows, one
// after the other; the file is read and the answers are written in this page alone.
const FILE_LIMITS = { bytes: 10_000_000, rows: 10_000, preview: 20, retries: 20 };

// The rows of a table whose cells may be quoted.
function parseTable(written, separator) {
  const rows = [];
  let [row, cell, quoted] = [[], "", false];
  const endRow = () => {
    if (row.length || cell) rows.push([...row, cell]);
    [row, cell] = [[], ""];
  };
  for (let n = 0; n < written.length; n++) {
    const c = written[n];
    if (quoted && c === '"' && written[n + 1] === '"') cell += written[n++];
    else if (c === '"' && (quoted || cell === "")) quoted = !quoted;
    else if (quoted) cell += c;
    else if (c === separator) [row, cell] = [[...row, cell], ""];
    else if (c === "\n") endRow();
    else if (c !== "\r" || written[n + 1] !== "\n") cell += c;
  }
  endRow();
  return rows;
}

// A cell of a CSV file; what a spreadsheet would take for a formula stands behind an apostrophe.
function csvCell(value) {
  const words = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
  return /[",\r\n]/.test(words) ? `"${words.replaceAll('"', '""')}"` : words;
}
const csvFile = (rows) => `\ufeff${rows.map((row) => `${row.map(csvCell).join(",")}\r\n`).join("")}`;

// An answer as columns: {name: value}.
function answerColumns({ spans, words: _, attention: __, ...fields }) {
  const columns = {};
  if (spans && !("answer" in fields)) columns.spans = spans.map(({ text: part, label: name, probability: p }) => `${part} (${name}, ${percent(p)})`).join("; ");
  for (const [name, value] of Object.entries(fields)) {
    if (isProbabilities(value)) [[columns[name], columns[`${name} probability`]]] = ordered(value);
    else if (isNumbers(value)) columns[name] = value.join(" ");
    else if (typeof value === "number" || typeof value === "string") columns[name] = value;
    else columns[name] = value === null ? "" : phrase(value);
  }
  return columns;
}

// Groups of places in `texts` that one request may hold; blank texts have no answer.
function requestGroups(texts) {
  const size = (words) => new TextEncoder().encode(JSON.stringify(words)).length + 1;
  const groups = [];
  let room = 0;
  texts.forEach((words, n) => {
    if (!words.trim()) return;
    if (!groups.length || groups.at(-1).length >= data.limits.texts || size(words) > room) {
      groups.push([]);
      room = data.limits.body - 1000;
    }
    groups.at(-1).push(n);
    room -= size(words);
  });
  return groups;
}

// The card of a page whose requests are `request(texts)`; `columns` gives the columns of an answer.
function fileCard(request, columns) {
  const file = make("input", { id: "table-file", type: "file", accept: ".txt,.csv,.tsv,text/plain,text/csv" });
  const column = make("select", { id: "table-column" });
  const columnLabel = make("label", { for: "table-column" }, "Column ", column);
  const header = make("input", { id: "table-header", type: "checkbox" });
  const headerLabel = make("label", { for: "table-header" }, header, " the first row has names");
  const [start, stop, save] = [["submit", "Answer all"], ["button", "Stop"], ["button", "Download as CSV"]].map(([type, title]) => make("button", { type }, title));
  const state = make("p", { id: "table-state", class: "note", role: "status" });
  const preview = make("div", { class: "scroll", role: "group", tabindex: "0", "aria-label": "first answers" });
  const fields = make("div", { class: "asked" }, columnLabel, headerLabel, start, stop, save);
  const fileForm = make("form", {}, make("label", { for: "table-file" }, "A text per line, or a CSV file of which you choose a column "), file, fields, state, preview);
  const card = make("details", { class: "card", id: "batch" }, make("summary", {}, "Answer a whole file"), fileForm);
  let [table, isTable, answers, running] = [[], false, [], null]; // rows of cells, answers per row of the body

  const names = () => (isTable ? table[0].map((name, n) => (header.checked && name) || `column ${n + 1}`) : ["text"]);
  const body = () => (isTable && header.checked ? table.slice(1) : table);
  const show = (sentence) => {
    state.textContent = sentence;
    columnLabel.hidden = headerLabel.hidden = !isTable;
    start.hidden = !table.length || running !== null;
    stop.hidden = running === null;
    save.hidden = running !== null || !answers.length;
    preview.hidden = !answers.length;
  };
  const drawColumns = () => {
    const before = column.value;
    column.replaceChildren(...(table.length ? names() : []).map((name, n) => make("option", { value: n }, visible(name))));
    column.value = before || "0";
  };
  // The file that is saved: the columns of the file, then those of the answers; a name that is taken gets a word before it.
  const outputRows = () => {
    const given = [...new Set(answers.flatMap((each) => Object.keys(each ?? {})))];
    const rows = body().map((row, n) => [...names().map((_, k) => row[k] ?? ""), ...given.map((name) => answers[n]?.[name] ?? "")]);
    return [[...names(), ...given.map((name) => (names().includes(name) ? `predicted ${name}` : name))], ...rows];
  };
  const drawPreview = () => {
    const [head, ...rows] = outputRows();
    const cells = (row) => row.map((value) => make("td", { dir: "auto", lang: "" }, visible(shortened(String(value)))));
    const titles = head.map((name) => make("th", { scope: "col" }, visible(name)));
    const drawn = rows.slice(0, FILE_LIMITS.preview).map((row) => make("tr", {}, ...cells(row)));
    preview.replaceChildren(make("table", { class: "records" }, make("thead", {}, make("tr", {}, ...titles)), make("tbody", {}, ...drawn)));
  };

  async function take(picked) {
    [table, answers, isTable] = [[], [], false];
    if (picked.size > FILE_LIMITS.bytes) return show(`The file may have at most ${FILE_LIMITS.bytes.toLocaleString("en")} bytes, got ${picked.size.toLocaleString("en")}; cut it into parts.`);
    const written = new TextDecoder().decode(await picked.arrayBuffer());
    if (written.includes("\ufffd")) return show("The file is not in UTF-8; save it as CSV UTF-8 or as text in UTF-8.");
    isTable = /\.(csv|tsv)$/i.test(picked.name);
    const first = written.split("\n", 1)[0];
    const separator = [",", ";", "\t"].sort((a, b) => first.split(b).length - first.split(a).length)[0];
    table = isTable ? parseTable(written, separator) : written.split(/\r?\n/).filter((line) => line.trim()).map((line) => [line]);
    if (table.length > FILE_LIMITS.rows + 1) {
      const rows = table.length;
      table = [];
      return show(`The file may have at most ${FILE_LIMITS.rows.toLocaleString("en")} rows, got ${rows.toLocaleString("en")}; cut it into parts.`);
    }
    header.checked = isTable;
    drawColumns();
    show(table.length ? `${body().length} rows.` : "The file is empty.");
  }

  // The response to a group; a service that is busy says when to ask again.
  async function respond(texts, signal) {
    for (let n = 0; ; n++) {
      const response = await sendRequest(fileForm, JSON.stringify(request(texts)), signal, () => fileForm.requestSubmit());
      if (![429, 503].includes(response.status) || n >= FILE_LIMITS.retries) return response;
      const seconds = Number(response.headers.get("Retry-After")) || 1;
      await new Promise((resolve) => setTimeout(resolve, 1000 * Math.min(seconds, 60)));
      signal.throwIfAborted();
    }
  }

  async function answerGroup(group, texts, signal) {
    const response = await respond(group.map((n) => texts[n]), signal);
    const received = await response.json();
    if (response.ok) group.forEach((n, k) => (answers[n] = columns(received.answers[k])));
    else if (![413, 422].includes(response.status)) throw new Error(received.error);
    // one text at a time, so that one that is refused leaves the others
    else if (group.length > 1) for (const n of group) await answerGroup([n], texts, signal);
    else answers[group[0]] = { error: received.error.replace("texts[0]", "the text") };
  }

  async function answerAll() {
    const texts = body().map((row) => row[Number(column.value) || 0] ?? "");
    const mine = (running = new AbortController());
    answers = [];
    show("");
    let ending = "answered";
    try {
      for (const group of requestGroups(texts)) {
        await answerGroup(group, texts, mine.signal);
        state.textContent = `${group.at(-1) + 1} of ${texts.length} rows …`;
      }
    } catch (error) {
      ending = error.name === "AbortError" ? "answered, then stopped" : `answered, then: ${error instanceof TypeError ? "the service does not answer" : error.message}`;
    }
    running = null;
    const refused = answers.filter((each) => each?.error !== undefined).length;
    if (answers.length) drawPreview();
    show(`${answers.filter(Boolean).length - refused} of ${texts.length} rows ${ending}${refused ? `; ${refused} refused, with a sentence in the column error` : ""}.`);
  }

  file.addEventListener("change", () => {
    running?.abort();
    if (file.files.length) take(file.files[0]);
  });
  header.addEventListener("change", () => {
    running?.abort();
    answers = [];
    drawColumns();
    show(`${body().length} rows.`);
  });
  column.addEventListener("change", () => {
    running?.abort();
    answers = [];
    show(`${body().length} rows.`);
  });
  fileForm.addEventListener("submit", (event) => {
    event.preventDefault();
    if (table.length && running === null) answerAll();
  });
  stop.addEventListener("click", () => running?.abort());
  save.addEventListener("click", () => {
    const address = URL.createObjectURL(new Blob([csvFile(outputRows())], { type: "text/csv;charset=utf-8" }));
    make("a", { href: address, download: "answers.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  });
  show("");
  return card;
}
