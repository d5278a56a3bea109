// The form of the page for sound: a WAV file that is dropped, chosen or pasted is sent as it is, and its transcript is
// drawn by html/spectrogram.js, which stands above in the same function. Only this service is asked, and nothing is kept.
const file = make("input", { id: "file", type: "file", accept: ".wav,audio/wav,audio/x-wav" });
const form = make(
  "form",
  { class: "card", id: "ask" },
  make("h2", {}, make("label", { for: "file" }, "Sound")),
  make("div", { class: "drop" }, file, make("p", { class: "hint" }, "Drop a WAV file anywhere on this page, paste one, or choose it.")),
  wrong,
  outcome,
);
const results = make("div", { id: "results" }, section);
results.hidden = true;
document.getElementById("page").append(make("h1", {}, data.title), form, results);

function ask(picked) {
  cancel(form);
  const most = Math.floor((data.limits.body - 200) * 0.75); // base64 takes a third more
  if (picked.size > most) return complain(`the sound may have at most ${most.toLocaleString("en")} bytes, got ${picked.size.toLocaleString("en")}; cut it into parts`);
  const body = fileAddress(picked).then((audio) => JSON.stringify({ audio, alignment: true }));
  post(form, body, ({ answers: [answer] }) => {
    outcome.textContent = answer.text || "(nothing)";
    results.hidden = false;
    Object.assign(view, { ...answer.alignment, seconds: answer.seconds });
    showAlignment();
    remember(picked.name || "a recording", outcome.textContent, () => ask(picked));
  });
}
acceptFiles(form, file, ask);
