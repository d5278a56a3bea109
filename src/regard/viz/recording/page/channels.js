// Gates of whole channels, without positions: one bar per channel.
const channelCanvas = make("canvas", { class: "cells" });
const channelFigure = make("div", { class: "figure", tabindex: "0", role: "application", "aria-roledescription": "bars", "aria-label": "weight of each channel", "aria-describedby": "keys" }, channelCanvas);
const channelNote = make("p", { class: "hint" });
let channelAt = null; // the positions of the bars in the last drawing

async function drawChannels(drawing) {
  const map = currentMap();
  channelAt = null;
  const { values: weights } = await loadFacts(map);
  if (drawing !== drawingNumber) return;
  const [width, height, left, below] = [Math.max(220, channelFigure.clientWidth), 260, 40, 26];
  const [low, high] = [Math.min(0, ...weights), Math.max(1, ...weights)];
  const pitch = (width - left - 8) / map.q;
  const y = (w) => 8 + ((high - w) / (high - low)) * (height - below - 8);
  const pen = context(channelCanvas, width, height);
  pen.clearRect(0, 0, width, height);
  const [soft, line, bar, accent] = cssColours("--soft", "--line", "--line-strong", "--accent");
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  for (const w of [...new Set([low, 0, 0.25, 0.5, 0.75, 1, high])]) {
    pen.fillStyle = line;
    pen.fillRect(left, y(w), width - left - 8, 1);
    pen.fillStyle = soft;
    pen.fillText(String(Number(w.toFixed(2))), left - 6, y(w));
  }
  weights.forEach((w, n) => {
    pen.fillStyle = n === state.q ? accent : bar;
    pen.fillRect(left + n * pitch, Math.min(y(w), y(0)), Math.max(1, pitch - (pitch > 4 ? 1 : 0)), Math.max(1, Math.abs(y(w) - y(0))));
  });
  pen.textAlign = "center";
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((n) => n * pitch >= 30) || 2000;
  for (let n = 0; n < map.q; n += step) {
    pen.fillStyle = n === state.q ? accent : soft;
    pen.fillText(String(n), left + (n + 0.5) * pitch, height - 12);
  }
  channelAt = { left, pitch, count: map.q };
  channelCanvas.dataset.bars = JSON.stringify(Array.from(weights));
  channelNote.textContent = `The weight of each of ${countText(map.q, "channel", "channels")}` + (map.signed ? ", a difference." : ": 1 leaves a channel as it is, 0 silences it. A gate of whole channels has no positions.");
}
channelCanvas.addEventListener("click", (event) => {
  if (!channelAt) return;
  const n = Math.floor((event.clientX - channelCanvas.getBoundingClientRect().left - channelAt.left) / channelAt.pitch);
  if (n >= 0 && n < channelAt.count) change({ q: n });
});
channelFigure.addEventListener("keydown", (event) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (by && channelAt) change({ q: state.q + by });
  else if (!moveByKey(event)) return;
  event.preventDefault();
});
