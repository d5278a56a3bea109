// The form of a page about language models: a prompt is continued, and the text is shown as it is sampled.
// Only this service is asked, and nothing is kept.
const text = make("textarea", { id: "text", rows: "5", dir: "auto", lang: "", spellcheck: "false", autocomplete: "off" });
const number = (id, title, attributes) => make("label", { for: id }, title, make("input", { id, type: "number", ...attributes }));
const form = make(
  "form",
  { class: "card", id: "ask" },
  make("h2", {}, make("label", { for: "text" }, "Prompt")),
  text,
  make(
    "div",
    { class: "asked" },
    number("tokens", "Tokens", { min: "1", max: String(data.most), value: String(data.tokens) }),
    number("temperature", "Temperature", { min: "0", max: "5", step: "0.1", value: "0.8" }),
    number("seed", "Seed", { min: "0", value: "0" }),
    make("button", { type: "submit" }, "Generate"),
  ),
  wrong,
  outcome,
);
const prompt = make("strong", {});
const continuation = make("span", { id: "continuation" });
const generated = make("p", { id: "generated", dir: "auto", lang: "" }, prompt, continuation);
generated.style.whiteSpace = "pre-wrap";
const results = make("section", { class: "card", id: "results", "aria-label": "text" }, generated);
results.hidden = true;
document.getElementById("page").append(make("h1", {}, data.title), form, results);

function take(event, asked) {
  if (!event.answers) return continuation.append(event.text);
  const [answer] = event.answers[0].texts;
  outcome.textContent = `${answer.tokens} tokens${answer.finished ? ", ended by itself" : ""}`;
  remember(asked || "(an empty prompt)", answer.text, () => {
    text.value = asked;
    generate();
  });
}

function generate() {
  const value = (id) => Number(document.getElementById(id).value);
  const request = { text: text.value, tokens: value("tokens"), temperature: value("temperature"), seed: value("seed"), stream: true };
  const begin = () => {
    prompt.textContent = request.text;
    continuation.replaceChildren();
    results.hidden = false;
  };
  postStream(form, JSON.stringify(request), begin, (event) => take(event, request.text));
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  generate();
});
text.focus();
fillExample(text);
