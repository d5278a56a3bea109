// The form of the image page: a picture that is dropped, chosen or pasted is sent as it is, and drawn by
// html/image_overlay.js, which stands above in the same function. Only this service is asked, and nothing is kept.
const KINDS = ["image/png", "image/jpeg"];

const file = make("input", { id: "file", type: "file", accept: KINDS.join() });
const example = make("button", { type: "button", id: "example" }, "Try a drawn 3");
const form = make(
  "form",
  { class: "card", id: "ask" },
  make("h2", {}, make("label", { for: "file" }, "Picture")),
  make("div", { class: "drop" }, file, make("p", { class: "hint" }, "Drop a PNG or JPEG file anywhere on this page, paste one, or choose it.")),
  make("div", { class: "asked" }, example),
  wrong,
  outcome,
);
const list = make("tbody");
const chances = make(
  "section",
  { class: "card", id: "chances", "aria-label": "what it is" },
  make("h2", {}, "What it is"),
  probabilityTable(list),
);
const results = make("div", { id: "results" }, chances, section);
results.hidden = true;
document.getElementById("page").append(make("h1", {}, data.title), form, results);
if (!data.attends) results.append(make("p", { class: "note" }, "This model does not say where it looks, so there is nothing else to see."));

function draw(answer, picture, picked) {
  const before = view.maps[at.map]?.name;
  Object.assign(view, { picture, words: answer.words || [], path: answer.path || [], maps: answer.maps || [] });
  const classes = answer.classes || [];
  list.replaceChildren(...probabilityRows(classes.map(({ name, probability }) => [name, probability])));
  chances.hidden = !classes.length;
  results.hidden = false;
  outcome.textContent = answer.text !== undefined ? answer.text || "(nothing)" : `${classes[0].name}, ${percent(classes[0].probability)}`;
  remember(picked.name || "a picture", outcome.textContent, () => ask(picked));
  showStep(Math.max(0, view.maps.findIndex((map) => map.name === before)), 0);
}

function ask(picked) {
  cancel(form);
  const most = Math.floor((data.limits.body - 200) * 0.75); // base64 takes a third more
  if (picked.size > most) return complain(`the picture may have at most ${most.toLocaleString("en")} bytes, got ${picked.size.toLocaleString("en")}; make it smaller`);
  if (!KINDS.includes(picked.type)) return complain(`the picture must be a PNG or JPEG file, got ${picked.type || "a file of another kind"}`);
  const body = fileAddress(picked).then((image) => JSON.stringify({ image, maps: data.attends }));
  post(form, body, async (answer, isCurrent) => {
    const picture = await createImageBitmap(picked).catch(() => null);
    if (isCurrent()) draw(answer.answers[0], picture, picked);
  });
}

// A digit as the built-in data have them: bright on dark.
example.addEventListener("click", () => {
  const canvas = make("canvas", { width: 64, height: 64 });
  const pen = canvas.getContext("2d");
  pen.fillRect(0, 0, 64, 64);
  Object.assign(pen, { fillStyle: "#fff", font: "bold 60px sans-serif", textAlign: "center", textBaseline: "middle" });
  pen.fillText("3", 32, 34);
  canvas.toBlob((blob) => ask(new File([blob], "a drawn 3", { type: "image/png" })));
});

acceptFiles(form, file, ask);
