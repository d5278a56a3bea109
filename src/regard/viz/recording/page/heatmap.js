// The heat map: tiles at the level that the zoom needs, axis labels that thin out, the entropy of rows and the mean of
// columns in the margins, and a crosshair. The canvas has the size of its element; zooming moves the view inside it.
const MARGIN = 40; // of the bars beside the map
const LARGEST = 56; // a cell, in pixels
const paintedTiles = new RecentCache(400);

function heatMap(painter, name) {
  const canvas = make("canvas", { class: "cells" });
  const figure = make(
    "div",
    { class: "figure", tabindex: "0", role: "application", "aria-roledescription": "heat map", "aria-label": name, "aria-describedby": "keys" },
    canvas,
  );
  let at = null; // the geometry of the last drawing
  let drag = null;

  function geometry() {
    const map = currentMap();
    const width = Math.max(200, figure.clientWidth);
    const pen = context(canvas, width, at ? at.height : 300);
    const narrow = width < 480;
    const widest = (axis, count) => {
      let most = 0;
      for (let n = 0; n < count; n += Math.max(1, Math.floor(count / 200))) most = Math.max(most, pen.measureText(shortLabel(map, axis, n)).width);
      return Math.ceil(most);
    };
    const left = Math.min(narrow ? 64 : 110, widest("q", map.q)) + 10;
    const top = Math.min(narrow ? 64 : 96, widest("k", map.k)) + 10;
    const room = width - left - MARGIN;
    const high = clamp(innerHeight * 0.74, 260, 720) - top - MARGIN;
    let [sx, sy] = [Math.min(LARGEST, room / map.k), Math.min(LARGEST, high / map.q)];
    if (sx < 4 * sy && sy < 4 * sx) sx = sy = Math.min(sx, sy);
    const height = clamp(map.q * sy, Math.min(high, 24), high);
    const most = Math.max(1, LARGEST / Math.max(sx, sy));
    const zoom = state.view ? clamp(state.view[2], 1, most) : 1;
    [sx, sy] = [sx * zoom, sy * zoom];
    const [across, down] = [Math.min(room, map.k * sx), Math.min(height, map.q * sy)];
    let [y, x] = state.view || [0, 0];
    if (cursorMoved) {
      y = clamp(y, state.q + 1 - down / sy, state.q);
      x = clamp(x, state.k + 1 - across / sx, state.k);
    }
    y = clamp(y, 0, Math.max(0, map.q - down / sy));
    x = clamp(x, 0, Math.max(0, map.k - across / sx));
    if (state.view) state.view = [y, x, zoom];
    return { map, width, height: top + height + MARGIN, left, top, sx, sy, y, x, across, down, zoom, most };
  }

  // Requests again a tile that the server had read only in part.
  function requestAgain(key, cached) {
    if (cached.again) return;
    cached.again = true;
    setTimeout(() => {
      paintedTiles.drop(key);
      schedule();
    }, 400);
  }

  // The visible tiles of a level; a coarser level is shown while a tile is loading.
  function drawTiles(pen, level, asking) {
    const { map, left, top, sx, sy, y, x, across, down } = at;
    const span = TILE * 2 ** level;
    const stamp = painter.stamp();
    let missing = 0;
    for (let ty = Math.floor(y / span); ty * span < Math.min(map.q, y + down / sy); ty++) {
      for (let tx = Math.floor(x / span); tx * span < Math.min(map.k, x + across / sx); tx++) {
        const key = `${stamp}/${level}/${ty}/${tx}`;
        const cached = paintedTiles.peek(key);
        if (cached) {
          const size = 2 ** level;
          const [dx, dy] = [left + (tx * span - x) * sx, top + (ty * span - y) * sy];
          pen.drawImage(cached.canvas, dx, dy, cached.canvas.width * size * sx, cached.canvas.height * size * sy);
          if (!cached.done && asking) {
            missing++;
            requestAgain(key, cached);
          }
        } else if (asking) {
          missing++;
          paintedTiles.get(key, () => painter.paint(level, ty, tx)).then(schedule, showError);
        }
      }
    }
    return missing;
  }

  function drawCells(pen) {
    const { left, top, sx, sy, across, down } = at;
    const neededLevel = Math.max(0, Math.ceil(Math.log2(1 / Math.min(1, Math.max(sx, sy) * density))));
    const levels = painter.levels();
    const level = levels.filter((candidate) => candidate >= neededLevel).pop() ?? levels[0];
    pen.save();
    pen.beginPath();
    pen.rect(left, top, across, down);
    pen.clip();
    pen.imageSmoothingEnabled = false;
    if (levels[0] !== level) drawTiles(pen, levels[0], false);
    const missing = drawTiles(pen, level, true);
    drawMask(pen, at);
    if (Math.min(sx, sy) >= 9 && level === 0) drawGrid(pen);
    pen.restore();
    figure.setAttribute("aria-busy", String(missing > 0));
    figure.dataset.level = level;
  }

  function drawGrid(pen) {
    const { map, left, top, sx, sy, y, x, across, down } = at;
    pen.fillStyle = cssColours("--card")[0];
    for (let j = Math.ceil(x); j <= x + across / sx; j++) pen.fillRect(left + (j - x) * sx - 0.5, top, 1, down);
    for (let i = Math.ceil(y); i <= y + down / sy; i++) pen.fillRect(left, top + (i - y) * sy - 0.5, across, 1);
    const statistics = facts.peek(map.n);
    if (Math.min(sx, sy) < 30 || painter !== plainPainter || !statistics) return;
    // the figures of the greatest weights, where they fit into their cells
    pen.font = `11px ${fontFamily}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let i = Math.floor(y); i < Math.min(map.q, y + down / sy); i++) {
      const share = remainingShare(map, statistics, i);
      for (let n = i * map.top; n < (i + 1) * map.top; n++) {
        const [j, w] = [statistics.columns[n], statistics.values[n] / share];
        if (Math.abs(w) < 0.005 || isHidden(map, j)) continue;
        pen.fillStyle = ink(weightColour(map, w));
        pen.fillText(Math.abs(w) < 0.995 ? w.toFixed(2).replace("0.", ".") : w.toFixed(1), left + (j + 0.5 - x) * sx, top + (i + 0.5 - y) * sy);
      }
    }
  }

  function drawRulers(pen) {
    const { map, left, top, sx, sy, y, x, across, down } = at;
    const [strong, soft, card, accent] = cssColours("--ink", "--soft", "--card", "--accent");
    const now = point();
    pen.font = `12px ${fontFamily}`;
    pen.textBaseline = "middle";
    const every = (size) => [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000].find((n) => n * size >= 14) || 20000;
    const write = (axis, n, selected) => {
      pen.save();
      if (axis === "q") pen.translate(left - 7, top + (n + 0.5 - y) * sy);
      else {
        pen.translate(left + (n + 0.5 - x) * sx, top - 7);
        pen.rotate(-Math.PI / 2);
      }
      pen.textAlign = axis === "q" ? "right" : "left";
      const most = (axis === "q" ? left : top) - 9;
      const text = ellipsize(pen, shortLabel(map, axis, n), most);
      if (selected) {
        pen.fillStyle = card;
        pen.fillRect(axis === "q" ? -left : -2, -9, (axis === "q" ? left : top) + 4, 18);
      }
      pen.fillStyle = selected ? accent : soft;
      if (selected) pen.font = `600 12px ${fontFamily}`;
      pen.fillText(text, 0, 0);
      pen.restore();
    };
    for (const [axis, start, size, length, count] of [["q", y, sy, down, map.q], ["k", x, sx, across, map.k]]) {
      const step = every(size);
      // labels of cells whose middle is visible
      for (let n = Math.ceil((start - 0.5) / step) * step; n < Math.min(count, start + length / size - 0.5); n += step) write(axis, n, false);
      const selected = now[axis];
      if (selected >= start - 0.5 && selected < start + length / size - 0.4) write(axis, selected, true);
    }
    pen.strokeStyle = strong;
  }

  // Bars: the entropy of each row on the right, the mean weight of each column below.
  function drawMargins(pen) {
    const { map, left, top, sx, sy, y, x, across, down } = at;
    const statistics = facts.peek(map.n);
    if (!statistics) {
      loadFacts(map).then(schedule, showError);
      return;
    }
    pen.fillStyle = cssColours("--bar")[0];
    const long = MARGIN - 12;
    const bars = (list, start, size, length, draw) => {
      const thick = Math.max(1, size);
      for (let n = 0; n < length; n += thick) {
        const first = Math.floor(start + n / size);
        const most = greatest(list, first, Math.max(1, Math.round(thick / size)));
        if (most) draw(n, Math.min(thick, length - n), (most / 255) * long);
      }
    };
    const gap = (thick) => (thick > 4 ? 1 : 0);
    bars(statistics.spread, y, sy, down, (n, thick, size) => pen.fillRect(left + across + 6, top + n, size, thick - gap(thick)));
    const received = state.hide ? statistics.received.map((b, j) => (map.sinks.includes(j) ? 0 : b)) : statistics.received;
    bars(received, x, sx, across, (n, thick, size) => pen.fillRect(left + n, top + down + 6, thick - gap(thick), size));
  }

  function drawCross(pen) {
    const { left, top, sx, sy, y, x, across, down } = at;
    const { q, k } = point();
    pen.save();
    pen.beginPath();
    pen.rect(left - 2, top - 2, across + 4, down + 4);
    pen.clip();
    pen.strokeStyle = cssColours("--accent")[0];
    const off = Math.min(sx, sy) < 8 ? 2 : 0; // the frame of a thin row keeps a distance, so that the row stays visible
    pen.globalAlpha = 0.55;
    pen.lineWidth = 1;
    pen.strokeRect(left, top + (q - y) * sy - off, across, sy + 2 * off);
    pen.strokeRect(left + (k - x) * sx - off, top, sx + 2 * off, down);
    pen.globalAlpha = 1;
    pen.lineWidth = state.pinned ? 3 : 2;
    pen.strokeRect(left + (k - x) * sx - off, top + (q - y) * sy - off, sx + 2 * off, sy + 2 * off);
    pen.restore();
  }

  function drawAll() {
    if (!figure.clientWidth) return;
    at = geometry();
    const pen = context(canvas, at.width, at.height);
    pen.clearRect(0, 0, at.width, at.height);
    if (!at.map.q || !at.map.k || !painter.levels().length) return;
    drawCells(pen);
    drawMargins(pen);
    drawRulers(pen);
    drawCross(pen);
    figure.style.touchAction = at.zoom > 1 ? "none" : "pan-y";
    canvas.dataset.place = JSON.stringify([at.left, at.top, at.sx, at.sy, at.y, at.x]);
  }

  function cell(event) {
    const box = canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    if (!at || px < at.left || py < at.top || px >= at.left + at.across || py >= at.top + at.down) return null;
    return { q: Math.min(at.map.q - 1, Math.floor(at.y + (py - at.top) / at.sy)), k: Math.min(at.map.k - 1, Math.floor(at.x + (px - at.left) / at.sx)) };
  }

  // Zooms in or out around a cell that keeps its position.
  function zoom(factor, around = null) {
    if (!at) return;
    const middle = around || { q: clamp(state.q, at.y, at.y + at.down / at.sy), k: clamp(state.k, at.x, at.x + at.across / at.sx) };
    const next = clamp(at.zoom * factor, 1, at.most);
    const real = next / at.zoom;
    const keep = (n, start) => n + 0.5 - (n + 0.5 - start) / real;
    change({ view: next <= 1.001 ? null : [keep(middle.q, at.y), keep(middle.k, at.x), next] });
  }

  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, view: at && [at.y, at.x, at.zoom], far: false };
    if (at && at.zoom > 1) canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag && at && at.zoom > 1) {
      const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
      drag.far = drag.far || Math.hypot(dx, dy) > 4;
      if (drag.far) change({ view: [drag.view[0] - dy / at.sy, drag.view[1] - dx / at.sx, at.zoom] });
      return;
    }
    if (event.pointerType !== "mouse" || state.pinned) return;
    const over = cell(event);
    if (hover?.q === over?.q && hover?.k === over?.k) return;
    hover = over;
    schedule();
  });
  canvas.addEventListener("pointerleave", () => {
    hover = null;
    schedule();
  });
  canvas.addEventListener("pointerup", (event) => {
    const over = drag && !drag.far ? cell(event) : null;
    drag = null;
    if (!over) return;
    hover = null;
    change({ ...over, pinned: !(state.pinned && over.q === state.q && over.k === state.k) });
  });
  canvas.addEventListener("pointercancel", () => (drag = null));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 200), cell(event));
  }, { passive: false });
  figure.addEventListener("keydown", (event) => {
    const factor = { "+": 2, "=": 2, "-": 0.5, 0: 0 }[event.key];
    if (factor === 0) change({ view: null });
    else if (factor && !event.ctrlKey) zoom(factor);
    else if (!moveByKey(event)) return;
    event.preventDefault();
  });
  return { figure, canvas, draw: drawAll, zoom, whole: () => change({ view: null }) };
}
