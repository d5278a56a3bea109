// What a reader of the page can do and see; test_browser.py puts it before each script that acts as one.
const seen = {};
const [SOURCE, TARGET] = [0, 1];
const $ = (selector) => document.querySelector(selector);
const group = (which) => document.querySelectorAll(".tokens")[which];
const chip = (which, n) => group(which).children[n];
const each = (which, look) => [...group(which).children].map(look);
const said = () => $("#status").textContent;
const tints = (which) => each(which, (chip) => chip.style.backgroundColor);
const figures = (which) => each(which, (chip) => chip.lastChild.textContent);
const labels = (which) => each(which, (chip) => chip.firstChild.textContent);
const pause = () => new Promise((done) => setTimeout(done, 30));
const pointer = (element, kind, at = {}) =>
  element.dispatchEvent(new PointerEvent(kind, { bubbles: kind !== "pointerleave", pointerType: "mouse", ...at }));
const key = (element, name) =>
  element.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
const go = async (hash) => {
  location.hash = hash;
  await pause();
};
// The middle of a cell of the heat map, on the screen and as it was painted.
const cell = (t, s) => {
  const box = $(".cells").getBoundingClientRect();
  const side = box.width / group(SOURCE).children.length;
  return { clientX: box.left + (s + 0.5) * side, clientY: box.top + (t + 0.5) * side };
};
const pixel = (t, s) => {
  const box = $(".cells").getBoundingClientRect();
  const scale = $(".cells").width / box.width;
  const at = cell(t, s);
  const copy = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  copy.drawImage($(".cells"), -Math.floor((at.clientX - box.left) * scale), -Math.floor((at.clientY - box.top) * scale));
  return [...copy.getImageData(0, 0, 1, 1).data];
};
