// What was asked in this page, the last first. It is in the memory of the page alone, and gone when the page is closed or loaded again.
const REMEMBERED = 50;
const earlierList = make("ol");
const forget = make("button", { type: "button", id: "forget" }, "Forget all");
const historyCard = make("details", { class: "card", id: "history" }, make("summary", {}, "Earlier in this page"), earlierList, make("div", { class: "asked" }, forget));
let earlier = []; // [{asked, answered, again}]

const shortened = (words) => ([...words].length > 120 ? `${[...words].slice(0, 119).join("")}…` : words);

function drawHistory() {
  earlierList.replaceChildren(
    ...earlier.map(({ asked, answered, again }) => {
      const button = make("button", { type: "button" }, make("bdi", { lang: "" }, visible(shortened(asked))));
      button.addEventListener("click", again);
      return make("li", {}, button, make("span", { class: "note", dir: "auto", lang: "" }, visible(shortened(answered))));
    }),
  );
  historyCard.hidden = !earlier.length;
}

// `again` asks again. A text that goes on with the one before it, while it is typed, takes its place.
function remember(asked, answered, again) {
  const last = earlier[0]?.asked;
  if (last !== undefined && (asked.startsWith(last) || last.startsWith(asked))) earlier.shift();
  earlier = [{ asked, answered, again }, ...earlier.filter((each) => each.asked !== asked)].slice(0, REMEMBERED);
  document.getElementById("page").append(historyCard);
  drawHistory();
}
forget.addEventListener("click", () => {
  earlier = [];
  drawHistory();
});

// Fills the example in, so that typing takes its place; it is not sent before somebody asks.
function fillExample(field) {
  field.value = data.example ?? "";
  field.select();
}
