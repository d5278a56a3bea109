"""The page of a recording in a browser: file size, first paint, response times; and served tiles.

    python -m benchmarks.page [--tokens 128 1024] [--served 32768] [--repeat 12]

Twelve layers of twelve heads: some attend to near tokens, some to a sink, some broadly, some at random. A headless
Chromium opens the file. "First paint" is the first contentful paint of the browser, from the start of the navigation;
the time of an action ends when everything is drawn. Tiles are requested over loopback from a process that serves one
causal head, first while it still reads the map, then after; its memory is the peak of that process.
"""

import argparse
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.report import show
from benchmarks.table import Bound, Row, absent, amount, summary
from benchmarks.timing import Spread, spread
from regard.attn.maps.attention_map import DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.recording.page.builder import write
from regard.viz.recording.tile_server import Server

LAYERS = HEADS = 12
# MB of a page by its tokens
SIZES = {128: 4.0, 1024: 20.0, 4096: 20.0}
SETTLED = """
    const settled = () => new Promise((resolve) => {
      const look = () => {
        const busy = document.querySelector('[role=tabpanel]:not([hidden]) [aria-busy=true]');
        const { drawn } = document.body.dataset;
        if (drawn !== undefined && drawn !== window.before && !busy) resolve(); else requestAnimationFrame(look);
      };
      requestAnimationFrame(look);
    });
    const timed = async (act) => {
      window.before = document.body.dataset.drawn;
      const start = performance.now();
      act();
      await settled();
      return performance.now() - start;
    };
    const figure = document.querySelector('#panel-heat .figure');
    const press = (key) => figure.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
"""


def weights(tokens: int, heads: int, seed: int) -> torch.Tensor:  # -> "1 h t t"
    """Causal weights similar to those of heads of a language model."""
    made = torch.Generator().manual_seed(seed)
    back = torch.arange(tokens)[:, None] - torch.arange(tokens)
    maps = []
    for h in range(heads):
        score = (0.5 + 0.25 * h) * torch.randn(tokens, tokens, generator=made)
        if h % 4 == 0:
            score -= (back - 1 - h) ** 2 / 8
        elif h % 4 == 1:
            score[:, 0] += 8
        elif h % 4 == 2:
            score -= back.abs() / 12
        maps.append(torch.softmax(score.masked_fill(back < 0, -torch.inf), -1))
    return torch.stack(maps)[None]


def recording(tokens: int, layers: int, heads: int) -> Recording:
    maps = tuple(
        RecordedMap(f"layers.{n}", "self", DenseMap(weights(tokens, heads, n)), certificate=0.0) for n in range(layers)
    )
    return Recording(maps).with_labels([f"word{n}" for n in range(tokens)])


def find() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


@contextmanager
def launched(path: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    flags = (
        ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    )  # Chromium has no sandbox for the superuser
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()


def paints(browser: Any, address: str, repeat: int) -> Spread:
    """Milliseconds to the first contentful paint, in a new page each time."""
    times = []
    for _ in range(repeat):
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        page.goto(address)
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
        times.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        page.close()
    return spread(times)


def acted(page: Any, body: str) -> list[float]:
    return list(page.evaluate(f"async () => {{ {SETTLED} const times = []; {body} return times; }}"))


def opened(browser: Any, tokens: int, layers: int, heads: int, repeat: int) -> Iterator[Row]:
    """The rows of one page: size, first paint, nodes, and response times."""
    case = f"{layers} × {heads} heads, {tokens:,} tokens"
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        path = write(recording(tokens, layers, heads), Path(folder) / "page.html")
        took = time.process_time() - start
        yield amount(case, "size of the file", "MB", path.stat().st_size / 1e6, SIZES.get(tokens), note=f"{took:.0f} s")
        yield amount(case, "first contentful paint", "ms", paints(browser, path.as_uri(), min(repeat, 5)), 2000)
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        page.goto(path.as_uri())
        page.wait_for_function("document.body.dataset.drawn")
        nodes = page.evaluate("document.querySelectorAll('*').length")
        yield Row(case, "DOM nodes", None, Spread(nodes, nodes, nodes), Bound("most", 2000))
        few = min(repeat, heads - 1)
        opening = acted(page, f"for (let n = 0; n < {few}; n++) times.push(await timed(() => press(']')));")
        yield _average(case, "opening a head for the first time, on average", opening)
        switching = acted(page, f"for (let n = 0; n < {few}; n++) times.push(await timed(() => press('[')));")
        yield _average(case, "switching to a head seen before, on average", switching)
        zooms = "for (let n = 0; n < 5; n++) times.push(await timed(() => press('+'))); press('0'); await settled();"
        zooming = acted(page, f"press('0'); {zooms} {zooms}")
        yield _average(case, "zooming, on average", zooming)
        page.close()


def _average(case: str, what: str, times: Sequence[float]) -> Row:
    mean = sum(times) / len(times)
    return amount(case, what, "ms", mean, 100, note=f"{len(times)} times, the slowest {max(times):.0f} ms")


def _serving(pipe: Connection, tokens: int) -> None:
    """A process that serves one causal head, and reports its peak memory at the end."""
    torch.manual_seed(0)
    angle = torch.arange(tokens)[:, None] * torch.exp(-0.3 * torch.arange(32))
    place = torch.cat([angle.sin(), angle.cos()], -1)
    q, k, v = (1.8 * (place + 0.5 * torch.randn(1, 1, tokens, 64)) for _ in range(3))
    seen = regard.attend(q, k, v[..., :1], mask=regard.Causal(), need=regard.Need(map=True)).map
    assert seen is not None
    tape = Recording((RecordedMap("layers.0", "self", seen, certificate=0.0),))
    with Server(tape, "127.0.0.1", 0, sample=0, image=None) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        pipe.send(server.address)
        pipe.recv()
        pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 * 1.048576)
        server.shutdown()


def served(tokens: int, repeat: int) -> Iterator[Row]:
    case = f"one causal head of {tokens:,} tokens, served"
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serving, args=(theirs, tokens), daemon=True)
    process.start()
    address = ours.recv()

    def ask(path: str) -> float:
        start = time.perf_counter()
        with urllib.request.urlopen(address + path) as answer:
            answer.read()
        return 1000 * (time.perf_counter() - start)

    def panned(steps: int) -> list[float]:
        """Requests random views of three by four tiles, at all levels; returns the times."""
        times = []
        for _ in range(steps):
            level = random.choice(range(max(1, (tokens // 256).bit_length() - 1)))
            across = max(1, (tokens // 256) >> level)
            y, x = random.randrange(across), random.randrange(across)
            views = {(min(y + dy, across - 1), min(x + dx, across - 1)) for dy in range(3) for dx in range(4)}
            times += [ask(f"tile/0/{level}/{ty}/{tx}") for ty, tx in sorted(views)]
        return times

    random.seed(0)
    first = ask("tile/0/0/1/1")
    reading: list[float] = []
    thread = threading.Thread(target=lambda: reading.append(ask("facts/0")))
    thread.start()
    during: list[float] = []
    while thread.is_alive() and len(during) < 12 * repeat:
        during += panned(1)
    thread.join()
    after = panned(2 * repeat)
    note = f"first tile: {first:.0f} ms; the whole map was read in {reading[0] / 1000:.0f} s meanwhile"
    yield amount(case, f"a tile while the map is read, median of {len(during)}", "ms", spread(during), 200, note=note)
    yield amount(case, f"a tile, median of {len(after)}", "ms", spread(after), 200)
    ours.send("stop")
    yield amount(case, "peak memory of the server", "MB", ours.recv(), 1000)
    process.join()


def measure(tokens: Sequence[int], long: int, repeat: int) -> Iterator[Row]:
    path = find()
    if path is None:
        yield absent("the page of a recording", "in a browser", "no Chromium is installed")
    else:
        with launched(path) as browser:
            for count in tokens:
                yield from opened(browser, count, *((1, 4) if count > 2048 else (LAYERS, HEADS)), repeat)
    if long:
        yield from served(long, repeat)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--tokens", type=int, nargs="*", default=[128, 1024, 4096], help="tokens of each page; 4,096: 4 heads"
    )
    parser.add_argument("--served", type=int, default=32768, help="tokens of the served map; 0: no served map")
    parser.add_argument("--repeat", type=int, default=12, help="repetitions (%(default)s)")
    given = parser.parse_args()
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    rows = show(measure(given.tokens, given.served, given.repeat))
    print(f"\n{summary(rows)} Load before: {load}.")
    return 1 if any(row.verdict in ("falls short", "not measured") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
