// Parts shared by all forms. `post` and `postStream` send a request to this service and show its error; a new request takes the place of the
// one that is under way. A form declares `results`, which an error hides.
const wrong = make("p", { id: "wrong", role: "alert" });
const outcome = make("p", { id: "outcome", class: "note", role: "status" });
let underWay = null; // AbortController of the request that was sent last

function complain(sentence) {
  wrong.textContent = sentence;
  outcome.textContent = "";
  results.hidden = true;
}

function cancel(form) {
  underWay?.abort();
  underWay = null;
  form.removeAttribute("aria-busy");
}

// A service may ask for a token, which is kept for this tab alone.
const tokenInput = make("input", { id: "token", type: "password", autocomplete: "current-password", required: "" });
const tokenForm = make(
  "form",
  { class: "card", id: "access" },
  make("h2", {}, make("label", { for: "token" }, "Token of the service")),
  make("input", { type: "text", autocomplete: "username", value: "regard", hidden: "" }), // for password managers
  make("div", { class: "asked" }, tokenInput, make("button", { type: "submit" }, "Use it")),
);
let askAgain = null;
tokenForm.addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", tokenInput.value.trim());
  askAgain();
});

// The response to a body of JSON; where a token is missing, `again` is called when it is typed.
async function sendRequest(form, body, signal, again) {
  const token = sessionStorage.getItem("token");
  const headers = { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(`v1/${data.task}`, { method: "POST", headers, body, signal });
  if (response.status === 401) {
    askAgain = again;
    form.before(tokenForm);
    tokenInput.focus();
  } else tokenForm.remove();
  return response;
}

// `body` is JSON, or a promise of it; `receive` gets a response that is no error, and whether no other request took its
// place since.
async function fetchAnswer(form, body, receive) {
  cancel(form);
  const mine = (underWay = new AbortController());
  const isCurrent = () => mine === underWay;
  form.setAttribute("aria-busy", "true");
  try {
    const response = await sendRequest(form, await body, mine.signal, () => fetchAnswer(form, body, receive));
    if (response.ok) return await receive(response, isCurrent);
    const { error } = await response.json();
    if (isCurrent()) complain(error);
  } catch (error) {
    if (isCurrent() && error.name !== "AbortError") complain("The service does not answer; is it still running?");
  } finally {
    if (isCurrent()) form.removeAttribute("aria-busy");
  }
}

// `done` gets the answer, and whether no other request took its place since.
function post(form, body, done) {
  return fetchAnswer(form, body, async (response, isCurrent) => {
    const answer = await response.json();
    if (!isCurrent()) return;
    wrong.textContent = "";
    await done(answer, isCurrent);
  });
}

// Asks for server-sent events, "data: JSON" and an empty line each. `begin` is called before the first, `take` gets each.
function postStream(form, body, begin, take) {
  return fetchAnswer(form, body, async (response, isCurrent) => {
    if (!isCurrent()) return;
    wrong.textContent = outcome.textContent = "";
    begin();
    const [reader, decoder] = [response.body.getReader(), new TextDecoder()];
    for (let rest = ""; ; ) {
      const { done, value } = await reader.read();
      if (done || !isCurrent()) return;
      const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = events.pop();
      for (const event of events.map((each) => JSON.parse(each.slice("data: ".length)))) {
        if (event.error) complain(event.error);
        else take(event);
      }
    }
  });
}

// Calls `ask` when the fingers rest after typing, and when the form is sent.
const REST = 300; // milliseconds
let waiting = null;
function askWhileTyping(form, ask) {
  const later = () => {
    clearTimeout(waiting);
    waiting = setTimeout(ask, REST);
  };
  form.addEventListener("input", (event) => {
    clearTimeout(waiting);
    if (!event.isComposing) later();
  });
  form.addEventListener("compositionend", later);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(waiting);
    ask();
  });
}

// A file as the text of a data: address.
const fileAddress = (picked) =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(picked);
  });

// Calls `ask` with the first file that is chosen by the input `file`, dropped on the page or pasted.
function acceptFiles(form, file, ask) {
  const taken = (files) => {
    if (files.length) ask(files[0]);
    return files.length > 0;
  };
  file.addEventListener("change", () => taken(file.files));
  file.addEventListener("click", () => (file.value = "")); // the same file, chosen again, may have changed
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("dragover", (event) => {
    event.preventDefault();
    form.classList.add("over");
  });
  addEventListener("dragleave", () => form.classList.remove("over"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    form.classList.remove("over");
    taken(event.dataTransfer.files);
  });
  addEventListener("paste", (event) => {
    if (taken(event.clipboardData.files)) event.preventDefault();
  });
  file.focus();
}

function percent(p) {
  return `${(100 * p).toFixed(1)} %`;
}
function bar(p) {
  const filled = make("div", { class: "filled" });
  filled.style.width = percent(p).replace(" ", "");
  return make("td", { class: "bar", "aria-hidden": "true" }, filled);
}
// Rows of a table: [[name, probability], …]
function probabilityRows(list) {
  return list.map(([name, p]) => make("tr", {}, make("th", { scope: "row", dir: "auto", lang: "" }, name), make("td", {}, percent(p)), bar(p)));
}
function probabilityTable(rows, title = "Class") {
  const head = make("tr", {}, make("th", { scope: "col" }, title), make("th", { scope: "col" }, "Probability"), make("td"));
  return make("table", { class: "chances" }, make("thead", {}, head), rows);
}
