// The form of a page about conversations: a turn is sent with all turns before it, and its answer is shown with the
// state, or the words that were attended to, beside it. The service keeps nothing; the conversation is in this page alone.
const field = (id, title) => [make("label", { for: id }, title), make("input", { id, type: "text", dir: "auto", lang: "", autocomplete: "off" })];
const [systemLabel, system] = field("system", "The system says before it (may stay empty)");
const [textLabel, text] = field("text", data.speaks ? "You say" : "The user says");
const undo = make("button", { type: "button", id: "undo" }, "Undo");
const restart = make("button", { type: "button", id: "new" }, "New conversation");
const form = make(
  "form",
  { class: "card", id: "ask" },
  ...(data.speaks ? [] : [systemLabel, system]),
  textLabel,
  text,
  make("div", { class: "asked" }, make("button", { type: "submit" }, "Send"), undo, restart),
  wrong,
);
const turns = make("ol", { id: "turns" });
const log = make("div", { role: "log", "aria-label": "conversation" }, turns);
// the turn that waits for its answer; an error hides it
const results = make("p", { class: "turn user", "aria-hidden": "true" });
results.hidden = true;
document.getElementById("page").append(make("h1", {}, data.title), log, results, form);

let exchanges = []; // [{system, user, answer}]; `system` is said before `user`

// Turns alternate, and the last one is the user's; the reply of an exchange is the system's turn of the next one.
const turnsOf = (list) => list.flatMap(({ system, user }, n) => (n || system ? [system, user] : [user]));

function turn(speaker, words) {
  return make("p", { class: `turn ${speaker}` }, make("b", {}, `${speaker}: `), make("bdi", { lang: "" }, words));
}

// Rows of a table: a plus marks a new slot, a tilde another value, a minus a slot that is gone, a question mark one that
// the user asks for; behind them the words that were attended to.
function stateTable({ state, requested, behind }, previous) {
  const changes = Object.keys({ ...previous, ...state }).map((slot) => {
    const [now, before] = [state[slot], previous[slot]];
    const mark = now === undefined ? "−" : before === undefined ? "+" : now === before ? "" : "~";
    return [mark, slot, now === undefined ? `(was ${before})` : mark === "~" ? `${now} (was ${before})` : now];
  });
  const all = [...changes, ...requested.map((slot) => ["?", slot, "is asked for"])];
  if (!all.length) return make("p", { class: "note" }, "The state is empty.");
  const rows = all.map(([mark, slot, value]) => {
    const words = (behind[slot] ?? []).map(({ word, weight }) => `${word} ${fixed(weight)}`).join(", ");
    return make("tr", mark ? { class: "changed" } : {}, make("td", {}, mark), make("th", { scope: "row", lang: "" }, slot), make("td", { dir: "auto", lang: "" }, value), make("td", { class: "note", dir: "auto", lang: "" }, words));
  });
  return make("table", { class: "state" }, make("caption", {}, "State, and the words behind it"), make("tbody", {}, ...rows));
}

function attendedWords(attended) {
  const most = largest(attended.flat().map(({ weight }) => weight));
  return attended.flatMap((words, n) => {
    if (!words.length) return [];
    const row = make("div", { class: "tokens", role: "group", tabindex: "0", "aria-label": `attended words of turn ${n + 1}`, dir: "auto", lang: "" });
    row.append(...words.map(({ word, weight }) => tintedToken(word, weight, most)));
    return [row];
  });
}

function exchangeItem({ system, user, answer }, n) {
  const said = [...(system && !data.speaks ? [turn("system", system)] : []), turn("user", user)];
  if (answer.reply !== undefined) said.push(turn("system", answer.reply || "(nothing)"));
  const beside = [];
  if (answer.state) beside.push(stateTable(answer, n ? exchanges[n - 1].answer.state : {}));
  if (answer.attended?.length) beside.push(make("h2", {}, "Attended words"), ...attendedWords(answer.attended));
  beside.push(...answer.notes.map((sentence) => make("p", { class: "hint" }, sentence)));
  return make("li", { class: "card exchange" }, make("div", { class: "said" }, ...said), make("div", { class: "beside" }, ...beside));
}

function drawAll() {
  turns.replaceChildren(...exchanges.map(exchangeItem));
  undo.disabled = restart.disabled = !exchanges.length;
}

// A request holds `data.characters` at most: the first exchanges are left out of a longer conversation.
function fitting(list) {
  let first = 0;
  const joined = () => turnsOf(list.slice(first)).join("\t");
  while (joined().length > data.characters && first < list.length - 1) first++;
  return [joined(), first];
}

const plain = (words) => words.split(/\s+/).filter(Boolean).join(" ");

function send() {
  const said = { system: data.speaks ? (exchanges.at(-1)?.answer.reply ?? "") : plain(system.value), user: plain(text.value) };
  if (!said.user) return complain("An empty line says nothing; type a turn.");
  const [conversation, dropped] = fitting([...exchanges, said]);
  results.replaceChildren(make("b", {}, "user: "), make("bdi", { lang: "" }, said.user));
  results.hidden = false;
  const finish = ({ answers: [{ chat }] }) => {
    results.hidden = true;
    if (dropped) chat.notes.push(`Left out: the first ${dropped} of your turns; a request has ${data.characters} characters at most.`);
    exchanges.push({ ...said, answer: chat });
    drawAll();
    system.value = text.value = "";
    text.focus();
    form.scrollIntoView({ block: "nearest" });
  };
  if (!data.streams) return post(form, JSON.stringify({ text: conversation, attention: true }), finish);
  const reply = make("bdi", { lang: "" });
  const begin = () => results.append(make("br"), make("b", {}, "system: "), reply);
  const take = (event) => (event.answers ? finish(event) : reply.append(event.text));
  postStream(form, JSON.stringify({ text: conversation, attention: true, stream: true }), begin, take);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
undo.addEventListener("click", () => {
  cancel(form);
  const last = exchanges.pop();
  text.value = last.user;
  if (!data.speaks) system.value = last.system;
  wrong.textContent = "";
  drawAll();
  text.focus();
});
restart.addEventListener("click", () => {
  cancel(form);
  exchanges = [];
  wrong.textContent = "";
  drawAll();
  text.focus();
});
dark.addEventListener("change", drawAll);
drawAll();
text.focus();
fillExample(text);
