// The form of the translation page: the whole text on the left is translated while it is typed, sentence by sentence, and
// stands whole on the right. A click on a sentence asks for its alignment, drawn by html/alignment.js, which stands above in
// the same function. Only this service is asked, and nothing is kept.
const text = make("textarea", { id: "text", rows: "8", dir: "auto", lang: "", spellcheck: "false", autocomplete: "off", "aria-describedby": "lines" });
const whole = make("div", { id: "whole", dir: "auto", lang: "", role: "group", "aria-label": "translation" });
const copy = make("button", { type: "button", id: "copy" }, "Copy");
const beam = make("input", { id: "beam", type: "number", min: "1", max: String(data.beam), value: String(Math.min(5, data.beam)) });
const nbest = make("input", { id: "nbest", type: "number", min: "1", max: String(data.beam), value: "1" });
const language = make("input", { id: "language", type: "text", size: "3", maxlength: "8", pattern: "[a-z]{2,8}", value: "en", autocomplete: "off", "aria-describedby": "lines" });
const form = make(
  "form",
  { class: "card", id: "ask" },
  make(
    "div",
    { class: "sides" },
    make("div", {}, make("h2", {}, make("label", { for: "text" }, "Source")), text),
    make("div", {}, make("div", { class: "titled" }, make("h2", {}, "Translation"), copy), whole),
  ),
  make(
    "div",
    { class: "asked" },
    make("label", { for: "beam" }, "beam ", beam),
    make("label", { for: "nbest" }, "alternatives ", nbest),
    make("label", { for: "language" }, "source language ", language),
    make("button", { type: "submit" }, "Translate"),
  ),
  make("p", { id: "lines", class: "hint" }, "It is translated while you type, sentence by sentence; the code of the source language (en, de, fr, …) tells abbreviations from ends of sentences. Choose a sentence of the translation to see its alignment."),
  wrong,
  outcome,
);

// What html/alignment.js made stays hidden until there is something to see; its heading gives way to that of the page.
const page = document.getElementById("page");
const results = make("div", { id: "results" }, ...page.childNodes);
heading.remove();
results.hidden = true;
page.append(make("h1", {}, "Translate with ", make("bdi", {}, data.run)), form, results);
wordsToggle.checked = true;
if (!data.attends) {
  for (const part of results.querySelectorAll(".card:not([id]), footer")) part.hidden = true;
  results.append(make("p", { class: "note" }, "This model has no attention, so there is nothing else to see."));
}

let sentences = []; // {before, source, unknown, translations} of the answer
let chosen = []; // the alternative that stands in the translation, by sentence
let current = 0; // the sentence whose alignment is shown
const wholeText = () => sentences.map(({ before, translations }, n) => before + translations[chosen[n]].text).join("");

function drawWhole() {
  const children = sentences.flatMap(({ before, translations }, n) => {
    const words = translations[chosen[n]].text || "(nothing)";
    return [before, make("span", { class: "sentence", role: "button", tabindex: "0", "aria-pressed": String(n === current) }, words)];
  });
  whole.replaceChildren(...children);
  copy.disabled = !sentences.length;
}

copy.disabled = true;
copy.addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(wholeText());
  } catch {
    // a page that came over plain HTTP from another machine has no clipboard of its own
    const field = make("textarea", {}, wholeText());
    form.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  outcome.textContent = "Copied.";
});

// As alignment.py writes weights and page.js reads them.
function encoded(rows) {
  const list = rows.flat();
  const view = new DataView(new ArrayBuffer(4 * list.length));
  list.forEach((w, n) => view.setFloat32(4 * n, w, true));
  let raw = "";
  for (let n = 0; n < view.byteLength; n++) raw += String.fromCharCode(view.getUint8(n));
  return btoa(raw);
}

function item({ source, unknown }, translation) {
  const notes = [`score ${translation.score.toFixed(3)}`];
  if (!translation.finished) notes.push("cut off: it came to no end");
  if (unknown) notes.push(`${unknown} ${unknown === 1 ? "token is" : "tokens are"} not in the vocabulary`);
  const drawable = (part) => part && { source: part.source, target: part.target, weights: encoded(part.weights) };
  const alignment = translation.alignment || { source: [], target: [], weights: [] };
  return { title: "", note: notes.join("; "), text: [source, translation.text], ...drawable(alignment), words: drawable(alignment.words) ?? null };
}

// The alternatives of one sentence, with their alignments.
function drawSentence(answer) {
  all.splice(0, all.length, ...answer.translations.map((translation) => item(answer, translation)));
  chooser.replaceChildren(...all.map(({ text }, n) => make("option", { value: n }, `${n + 1}. ${text[1].length > 70 ? text[1].slice(0, 69) + "…" : text[1]}`)));
  choice.hidden = all.length < 2;
  results.hidden = false;
  showAlignment(Math.min(chosen[current], all.length - 1));
}

const options = () => ({ beam: beam.valueAsNumber || 1, nbest: nbest.valueAsNumber || 1 });

function select(n) {
  current = n;
  drawWhole();
  const asked = sentences[n];
  if (!data.attends) return drawSentence(asked);
  if (asked.aligned) return drawSentence(asked.aligned);
  post(form, JSON.stringify({ text: asked.source, ...options(), alignment: true }), (answer) => {
    asked.aligned = answer.answers[0];
    drawSentence(asked.aligned);
  });
}

// A click on a sentence, here or in the source, shows its alignment.
const sentenceOf = (event) => [...whole.querySelectorAll(".sentence")].indexOf(event.target.closest(".sentence"));
whole.addEventListener("click", (event) => {
  if (sentenceOf(event) >= 0) select(sentenceOf(event));
});
whole.addEventListener("keydown", (event) => {
  if (!["Enter", " "].includes(event.key) || sentenceOf(event) < 0) return;
  event.preventDefault();
  select(sentenceOf(event));
  whole.querySelectorAll(".sentence")[current].focus();
});
text.addEventListener("click", () => {
  let end = 0;
  const n = sentences.findIndex(({ before, source }) => text.selectionStart <= (end += before.length + source.length));
  if (drawn && n >= 0 && n !== current) select(n);
});
// Another alternative takes its place in the whole translation.
for (const [element, event] of [[chooser, "change"], [before, "click"], [after, "click"]])
  element.addEventListener(event, () => {
    chosen[current] = number;
    drawWhole();
  });

let drawn = ""; // the request whose answer the page shows

function ask() {
  const body = JSON.stringify({ text: text.value, ...options(), split: "sentences", language: language.value });
  if (body === drawn) return;
  drawn = "";
  if (!text.value.trim()) {
    cancel(form);
    complain("");
    sentences = [];
    drawWhole();
    return;
  }
  post(form, body, ({ answers: [answer] }) => {
    drawn = body;
    const same = sentences[current]?.source;
    sentences = answer.segments;
    chosen = sentences.map(() => 0);
    outcome.textContent = `${sentences.length} ${sentences.length === 1 ? "sentence" : "sentences"} translated.`;
    const asked = JSON.parse(body).text;
    remember(asked, wholeText(), () => {
      text.value = asked;
      ask();
      text.focus();
    });
    select(Math.max(0, sentences.findIndex(({ source }) => source === same)));
  });
}

// the beam of the form, and each text as a whole, as the model reads it
results.after(fileCard((texts) => ({ texts, beam: options().beam, split: "sentences", language: language.value }), ({ translations: [best] }) => ({ translation: best.text, score: best.score })));
askWhileTyping(form, ask);
text.focus();
fillExample(text);
