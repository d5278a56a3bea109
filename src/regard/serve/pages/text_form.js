// The form of a page about texts: a text is answered while it is typed, and its attention drawn by html/tinted_text.js,
// which stands above in the same function. Only this service is asked, and nothing is kept.
const text = make("textarea", { id: "text", rows: "5", dir: "auto", lang: "", spellcheck: "false", autocomplete: "off" });
const form = make(
  "form",
  { class: "card", id: "ask" },
  make("h2", {}, make("label", { for: "text" }, "Text")),
  text,
  make("div", { class: "asked" }, make("button", { type: "submit" }, "Send")),
  wrong,
  outcome,
);
const answerCard = make("section", { class: "card", id: "answer", "aria-label": "answer" });
const results = make("div", { id: "results" }, answerCard, attention);
results.hidden = true;
document.getElementById("page").append(make("h1", {}, data.title), form, results);
if (!data.attends) results.append(make("p", { class: "note" }, "This model has no attention, so there is nothing else to see."));

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
// {name: probability, …}
const isProbabilities = (value) => isObject(value) && Object.values(value).length > 0 && Object.values(value).every((p) => typeof p === "number" && p >= 0 && p <= 1);
// [[{token, probability}, …], …], the candidates for each mask
const isCandidates = (value) => Array.isArray(value) && value.length > 0 && value.every((list) => Array.isArray(list) && list.every((item) => isObject(item) && typeof item.token === "string" && typeof item.probability === "number"));
const ordered = (value) => Object.entries(value).sort((a, b) => b[1] - a[1]);
const written = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function summary(value) {
  if (!isProbabilities(value)) return written(value);
  const [name, p] = ordered(value)[0];
  return `${name}, ${percent(p)}`;
}

function draw({ attention: maps, ...answer }) {
  const fields = Object.entries(answer);
  answerCard.replaceChildren(
    ...fields.flatMap(([name, value]) => {
      if (isCandidates(value)) {
        const table = (list) => probabilityTable(make("tbody", {}, ...probabilityRows(list.map(({ token, probability }) => [token, probability]))));
        return value.flatMap((list, n) => [make("h3", {}, value.length > 1 ? `mask ${n + 1}` : "mask"), table(list)]);
      }
      const shown = isProbabilities(value) ? probabilityTable(make("tbody", {}, ...probabilityRows(ordered(value)))) : make("p", { dir: "auto", lang: "" }, written(value));
      return [make("h3", {}, name), shown];
    }),
  );
  results.hidden = false;
  drawMaps(maps || []);
  outcome.textContent = fields.length ? summary(fields[0][1]) || "(nothing)" : "(nothing)";
}

let drawn = ""; // the request whose answer the page shows

function ask() {
  const request = { text: text.value };
  if (data.attends) request.attention = true;
  const body = JSON.stringify(request);
  if (body === drawn) return;
  drawn = "";
  if (!text.value.trim()) {
    cancel(form);
    complain("");
    return;
  }
  post(form, body, (answer) => {
    drawn = body;
    draw(answer.answers[0]);
  });
}

askWhileTyping(form, ask);
text.focus();
