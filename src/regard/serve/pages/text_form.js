// Typing and seeing: what is typed is translated as soon as the fingers rest, and drawn by alignments.js, whose parts
// stand above in the same function. Only this service is asked, and nothing is kept.
const REST = 300; // milliseconds

const text = make("textarea", { id: "text", rows: "3", dir: "auto", lang: "", spellcheck: "false", autocomplete: "off", "aria-describedby": "lines" });
const beam = make("input", { id: "beam", type: "number", min: "1", max: String(data.beam), value: String(Math.min(5, data.beam)) });
const nbest = make("input", { id: "nbest", type: "number", min: "1", max: String(data.beam), value: "1" });
const wrong = make("p", { id: "wrong", role: "alert" });
const outcome = make("p", { id: "outcome", class: "note", role: "status" });
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
    translations.map((one) => {
      const notes = [`score ${one.score.toFixed(3)}`];
      if (!one.finished) notes.push("cut off: it came to no end");
      if (unknown) notes.push(`${unknown} ${unknown === 1 ? "token is" : "tokens are"} not in the vocabulary`);
      const seen = one.alignment || { source: [], target: [], weights: [] };
      return { title: "", note: notes.join("; "), text: [source, one.text], source: seen.source, target: seen.target, weights: encoded(seen.weights) };
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
  turn(0);
  outcome.textContent = all.length === 1 ? `Translated: ${all[0].text[1] || "(nothing)"}` : `${all.length} translations; the first: ${all[0].text[1] || "(nothing)"}`;
}

function complain(sentence) {
  wrong.textContent = sentence;
  outcome.textContent = "";
  results.hidden = true;
}

let waiting = null; // the timer of the next question
let asking = null; // the question on its way
let drawn = ""; // what the page shows now

async function ask() {
  clearTimeout(waiting);
  const texts = text.value.split("\n").filter((line) => line.trim());
  const body = JSON.stringify({ texts, beam: beam.valueAsNumber || 1, nbest: nbest.valueAsNumber || 1, alignment: data.attends });
  if (body === drawn) return;
  asking?.abort();
  if (!texts.length) {
    drawn = "";
    complain("");
    return;
  }
  const mine = (asking = new AbortController());
  form.setAttribute("aria-busy", "true");
  try {
    const got = await fetch("/v1/translate", { method: "POST", headers: { "Content-Type": "application/json" }, body, signal: mine.signal });
    const answer = await got.json();
    if (mine !== asking) return;
    drawn = got.ok ? body : "";
    if (got.ok) {
      wrong.textContent = "";
      draw(answer);
    } else complain(answer.error);
  } catch (error) {
    if (mine === asking && error.name !== "AbortError") {
      drawn = "";
      complain("The service does not answer; is it still running?");
    }
  } finally {
    if (mine === asking) form.removeAttribute("aria-busy");
  }
}

form.addEventListener("input", (event) => {
  clearTimeout(waiting);
  if (!event.isComposing) waiting = setTimeout(ask, REST);
});
text.addEventListener("compositionend", () => {
  clearTimeout(waiting);
  waiting = setTimeout(ask, REST);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
text.focus();
