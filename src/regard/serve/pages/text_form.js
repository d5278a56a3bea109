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

function draw(words, { attention: maps, ...answer }) {
  answerCard.replaceChildren(...answerCards(words, answer));
  results.hidden = false;
  drawMaps(maps || []);
  outcome.textContent = answerSummary(answer);
  remember(words, outcome.textContent, () => {
    text.value = words;
    ask();
    text.focus();
  });
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
    draw(request.text, answer.answers[0]);
  });
}

results.after(fileCard((texts) => ({ texts }), answerColumns));
askWhileTyping(form, ask);
text.focus();
fillExample(text);
