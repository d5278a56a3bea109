// Cards of an answer: marked spans and tables. Every shape of JSON that a task answers with has one, so none is shown as JSON.
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isShare = (value) => typeof value === "number" && value >= 0 && value <= 1;
// {name: probability, …}
const isProbabilities = (value) => isObject(value) && Object.values(value).length > 0 && Object.values(value).every(isShare);
const isListOf = (value, check) => Array.isArray(value) && value.length > 0 && value.every(check);
const isNumbers = (value) => isListOf(value, (each) => typeof each === "number");
// [[{token, probability}, …], …], the candidates for each mask
const isCandidates = (value) => isListOf(value, (list) => isListOf(list, (item) => isObject(item) && typeof item.token === "string" && isShare(item.probability)));
// [{text, start, end, probability, label?}, …], places of the text, which are counted in code points
const isSpans = (value) => isListOf(value, (item) => isObject(item) && typeof item.text === "string" && Number.isInteger(item.start) && Number.isInteger(item.end));
const ordered = (value) => Object.entries(value).sort((a, b) => b[1] - a[1]);

// Characters that have no picture of their own, or that turn the words behind them around, by their pictures or names.
const visible = (words) =>
  words
    .replace(/[\x00-\x08\x0b-\x1f\x7f]/g, (c) => String.fromCharCode(c === "\x7f" ? 0x2421 : 0x2400 + c.charCodeAt(0)))
    .replace(/[\u202a-\u202e\u2066-\u2069]/g, (c) => `U+${c.charCodeAt(0).toString(16).toUpperCase()}`);
const spelled = (name) => name.replaceAll("_", " ");
const SHARES = ["probability"];
const NUMBERS = 8; // of a list, in a phrase

// A value as words for a cell, a sentence or a column of a file.
function phrase(value, name = "") {
  if (value === null || value === undefined || value === "") return "none";
  if (typeof value === "string") return visible(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return SHARES.includes(name) ? percent(value) : String(value);
  if (isNumbers(value)) return value.slice(0, NUMBERS).join(", ") + (value.length > NUMBERS ? `, … (${value.length} numbers)` : "");
  if (Array.isArray(value)) return value.map((each) => phrase(each)).join("; ") || "none";
  if (isProbabilities(value)) return ordered(value).map(([each, p]) => `${each} ${percent(p)}`).join(", ");
  return Object.entries(value).map(([key, each]) => (["text", "label", "answer", "token", ...SHARES].includes(key) ? phrase(each, key) : `${spelled(key)} ${phrase(each, key)}`)).join(", ") || "none";
}

// The text of a span, with its label where it has one; labels of one name have one colour.
function markedSpan(words, name) {
  const hue = [...(name ?? "")].reduce((sum, c) => (sum * 31 + c.codePointAt(0)) % 6, 0);
  const mark = make("mark", { class: `hue${hue}` }, make("bdi", {}, visible(words)));
  if (name !== undefined) mark.append(make("small", {}, make("bdi", {}, name)));
  return mark;
}

// The text with its spans marked; of spans without labels, which are alternatives, the best alone. Null if they are not places of it.
function markedText(words, spans) {
  const letters = [...words];
  if (!spans.every(({ text: part, start, end }) => letters.slice(start, end).join("") === part)) return null;
  const labelled = spans.every(({ label: name }) => name !== undefined);
  const places = (labelled ? [...spans] : spans.slice(0, 1)).sort((a, b) => a.start - b.start);
  const marked = make("div", { class: "marked", role: "group", tabindex: "0", "aria-label": "text with its spans", dir: "auto", lang: "" });
  let end = 0;
  for (const span of places) {
    if (span.start < end) continue;
    marked.append(visible(letters.slice(end, span.start).join("")), markedSpan(span.text, span.label));
    end = span.end;
  }
  marked.append(visible(letters.slice(end).join("")));
  return marked;
}

// Fields of rows that the page shows in another way: places in the text are marked, and the weights are those of the attention.
const PLACES = ["start", "end", "weights"];
const TITLES = { text: "span", runner_up: "runner-up" };

function recordTable(list, title) {
  const columns = [...new Set(["text", ...list.flatMap(Object.keys)])].filter((name) => !PLACES.includes(name) && list.some((record) => name in record));
  const shares = columns.includes("probability");
  const cell = (record, name, n) => (n ? make("td", { dir: "auto", lang: "" }, phrase(record[name], name)) : make("th", { scope: "row", dir: "auto", lang: "" }, phrase(record[name], name)));
  const rows = list.map((record) => make("tr", {}, ...columns.map((name, n) => cell(record, name, n)), ...(shares ? [bar(record.probability)] : [])));
  const head = columns.map((name) => make("th", { scope: "col" }, title === "spans" ? (TITLES[name] ?? spelled(name)) : spelled(name)));
  const table = make("table", { class: "records" }, make("thead", {}, make("tr", {}, ...head, ...(shares ? [make("td", { class: "bar" })] : []))), make("tbody", {}, ...rows));
  return make("div", { class: "scroll", role: "group", tabindex: "0", "aria-label": `table of ${spelled(title)}` }, table);
}

const sharesTable = (pairs, title) => probabilityTable(make("tbody", {}, ...probabilityRows(pairs.map(([name, p]) => [visible(name), p]))), title);

// A vector: its numbers, tinted by their sign and size.
function vectorChips(list) {
  const most = largest(list.map(Math.abs)) || 1;
  const row = make("div", { class: "tokens vector", role: "group", tabindex: "0", "aria-label": "vector" });
  for (const each of list) {
    const tint = divergingColour(each / most);
    const chip = make("span", { class: "token" }, each.toFixed(3));
    Object.assign(chip.style, { backgroundColor: `rgb(${tint})`, color: ink(tint) });
    row.append(chip);
  }
  const length = Math.sqrt(list.reduce((sum, each) => sum + each * each, 0));
  return [make("p", { class: "note" }, `${list.length} numbers, length ${length.toFixed(3)}`), row];
}

// The elements of one field.
function fieldCards(name, value) {
  if (isCandidates(value)) return value.flatMap((list, n) => [make("h3", {}, value.length > 1 ? `mask ${n + 1}` : "mask"), sharesTable(list.map(({ token, probability }) => [token, probability]), "Token")]);
  const heading = make("h3", {}, spelled(name));
  if (isProbabilities(value)) return [heading, sharesTable(ordered(value))];
  if (isNumbers(value)) return [heading, ...vectorChips(value)];
  if (isListOf(value, isObject)) return [heading, recordTable(value, name)];
  return [heading, make("p", { dir: "auto", lang: "" }, phrase(value, name))];
}

// The elements of an answer to a text: marked spans first, then its fields, and its words folded, since there are many.
function answerCards(words, { spans, words: tagged, ...fields }) {
  const cards = [];
  if (spans !== undefined) {
    const marked = isSpans(spans) ? markedText(words, spans) : null;
    if (marked) cards.push(make("h3", {}, "text"), marked);
  }
  for (const [name, value] of Object.entries(fields)) if (!(spans && PLACES.includes(name))) cards.push(...fieldCards(name, value));
  if (spans !== undefined) cards.push(...fieldCards("spans", spans));
  if (tagged !== undefined) cards.push(make("details", {}, make("summary", {}, "Words"), ...fieldCards("words", tagged).slice(1)));
  return cards;
}

// The answer in one line.
function answerSummary({ spans, words: _, ...fields }) {
  const [first] = Object.values(fields);
  if (first === undefined && spans) return spans.length ? spans.map(({ text: part, label: name }) => `${visible(part)} (${name})`).join(", ") : "No spans.";
  if (isProbabilities(first)) return ordered(first).slice(0, 1).map(([name, p]) => `${visible(name)}, ${percent(p)}`)[0];
  if (isNumbers(first)) return `A vector of ${first.length} numbers.`;
  if (isListOf(first, isObject)) return phrase(first[0]);
  return first === "" || first === undefined ? "(nothing)" : phrase(first);
}
