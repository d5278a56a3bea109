// The form of the translation page: text is translated while it is typed, and drawn by alignment/page.js, which stands
// above in the same function. Only this service is asked, and nothing is kept.
const text = make("textarea", { id: "text", rows: "3", dir: "auto", lang: "", spellcheck: "false", autocomplete: "off", "aria-describedby": "lines" });
const beam = make("input", { id: "beam", type: "number", min: "1", max: String(data.beam), value: String(Math.min(5, data.beam)) });
const nbest = make("input", { id: "nbest", type: "number", min: "1", max: String(data.beam), value: "1" });
const form = make(
  "form",
  { class: "card", id: "ask" },
  make("h2", {}, make("label", { for: "text" }, "Text to translate")),
  text,
  make("p", { id: "lines", class: "hint" }, "It is translated while you type; each line by itself."),
  make(
    "div",
    { class: "asked" },
    make("label", { for: "beam" }, "Hypotheses ", beam),
    make("label", { for: "nbest" }, "Translations ", nbest),
    make("button", { type: "submit" }, "Translate"),
  ),
  wrong,
  outcome,
);

// What alignments.js made stays hidden until there is something to see; its heading gives way to that of the page.
const page = document.getElementById("page");
const results = make("div", { id: "results" }, ...page.childNodes);
heading.remove();
results.hidden = true;
page.append(make("h1", {}, "Translate with ", make("bdi", {}, data.run)), form, results);
if (!data.attends) {
  for (const part of results.querySelectorAll(".card:not([id]), footer")) part.hidden = true;
  results.append(make("p", { class: "note" }, "This model has no attention, so there is nothing else to see."));
}

// As page.py writes weights and page.js reads them.
function encoded(rows) {
  const list = rows.flat();
  const view = new DataView(new ArrayBuffer(4 * list.length));
  list.forEach((w, n) => view.setFloat32(4 * n, w, true));
  let raw = "";
  for (let n = 0; n < view.byteLength; n++) raw += String.fromCharCode(view.getUint8(n));
  return btoa(raw);
}

function items(answer) {
  return answer.answers.flatMap(({ source, unknown, translations }) =>
    translations.map((translation) => {
      const notes = [`score ${translation.score.toFixed(3)}`];
      if (!translation.finished) notes.push("cut off: it came to no end");
      if (unknown) notes.push(`${unknown} ${unknown === 1 ? "token is" : "tokens are"} not in the vocabulary`);
      const alignment = translation.alignment || { source: [], target: [], weights: [] };
      return { title: "", note: notes.join("; "), text: [source, translation.text], source: alignment.source, target: alignment.target, weights: encoded(alignment.weights) };
    }),
  );
}

function draw(answer) {
  all.splice(0, all.length, ...items(answer));
  const name = (item) => item.text.join(" → ");
  const options = all.map((item, n) => make("option", { value: n }, `${n + 1}. ${name(item).length > 70 ? name(item).slice(0, 69) + "…" : name(item)}`));
  chooser.replaceChildren(...options);
  choice.hidden = all.length < 2;
  results.hidden = false;
  showAlignment(0);
  outcome.textContent = all.length === 1 ? `Translated: ${all[0].text[1] || "(nothing)"}` : `${all.length} translations; the first: ${all[0].text[1] || "(nothing)"}`;
}

let drawn = ""; // the request whose answer the page shows

function ask() {
  const texts = text.value.split("\n").filter((line) => line.trim());
  const body = JSON.stringify({ texts, beam: beam.valueAsNumber || 1, nbest: nbest.valueAsNumber || 1, alignment: data.attends });
  if (body === drawn) return;
  drawn = "";
  if (!texts.length) {
    cancel(form);
    complain("");
    return;
  }
  post(form, body, (answer) => {
    drawn = body;
    draw(answer);
  });
}

askWhileTyping(form, ask);
text.focus();
