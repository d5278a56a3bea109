"""The HTTP service under load: throughput, latency, correctness, and the gain of batching.

    python -m benchmarks.serving RUN [--seconds 60] [--clients 32]

`regard serve RUN` runs in a separate process on this machine. Each client sends its next request as soon as it has an
answer: one sentence, beam 5, every eighth with its alignment; or, for a run of an image task, one image, every eighth
with its maps. Every answer must be the same JSON as the answer to the same request alone, computed beforehand. Then the
same clients alternate between a service with batching and one without, and so do 1, 8 and 64 clients, for the
quantiles of their latency. Before that, in this process: the changes of numbers by their batch, compared with the
bounds of `regard.serve.rounding`, and the cost of answers that have none.
"""

import argparse
import asyncio
import base64
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.measured import TEXT, About
from benchmarks.report import RESULTS, Results, show
from benchmarks.table import Bound, Row, amount, summary
from benchmarks.timing import Spread, spread
from regard.inference.limits import Limits
from regard.serve.http.body_models import validate
from regard.serve.rounding import noise_of
from regard.tasks.loading import LoadedRun, load_run
from regard.tasks.registry import read_config
from regard.tasks.shared.image_data import read_pixels
from regard.tasks.shared.image_predictors import ImageInput, ImagePredictor
from regard.tasks.translate.task import read

SENTENCES, PICTURES, ATTENDED, ROUNDS, BATCH = 384, 192, 8, 3, 32
# clients at the same time, for the quantiles of the latency
CROWDS = (1, 8, 64)
# suffixes of the names of result files, by task
NAMES = {"translate": "", "classify-image": "-pictures", "glimpse": "-glimpses", "caption": "-captions"}
GAIN, COST = Bound("least", 3), Bound("most", 1.25)

HOW = """\
Clients and service run on the same machine, over loopback, with persistent connections; a client sends its next request
as soon as it has an answer. A request has one sentence, beam 5; every eighth asks for the alignment. Every answer is
compared with the answer to the same request alone, computed beforehand, and must be the same JSON. "One by one" is the
same service with `--batch 1`; both services alternate, and the ratio is computed within each round. The cost of equal
answers is the CPU time of the endpoint in this process, divided by that of a search whose numbers are not settled.
"""
HOW_SEEN = """\
Clients and service run on the same machine, over loopback, with persistent connections; a client sends its next
request as soon as it has an answer. A request has one image, 96 by 64 pixels of noise as PNG; every eighth asks for
the attention maps. Every answer is compared with the answer to the same request alone, computed beforehand, and must be
the same JSON. "One by one" is the same service with `--batch 1`; both services alternate, and the ratio is computed
within each round. The cost of equal answers is the CPU time of the endpoint in this process, divided by that of
predictions whose numbers are not settled.
"""


@dataclass(frozen=True, eq=False)
class Exchange:
    """A request, and the answer to it alone."""

    path: str
    body: bytes
    answer: dict[str, Any]

    def agrees(self, answer: Any) -> bool:
        """Whether an answer is the same JSON, in every digit and in the same order."""
        return json.dumps(answer) == json.dumps(self.answer)


@dataclass
class Load:
    """The statistics of the clients."""

    seconds: float = 0.0
    cpu: float = 0.0  # CPU seconds of the service
    wrong: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    took: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.statuses[200] / self.seconds

    def quantile(self, share: float) -> float:
        return sorted(self.took)[min(len(self.took) - 1, int(share * len(self.took)))]

    @property
    def faults(self) -> int:
        return sum(number for status, number in self.statuses.items() if status >= 500)


class Served:
    """The endpoint of a run in this process, and requests to it: bodies and the inputs in them, with no attention."""

    def __init__(self, run: Path) -> None:
        if (name := read_config(run).name) not in NAMES:
            raise ValueError(f"it is a run of {name}, which is not measured; name a run of {', '.join(NAMES)}")
        self.loaded = load_run(run, "best", "cpu")
        torch.set_num_threads(1)
        self.predictor = self.loaded.predictor
        self.endpoint: Any = self.predictor.endpoint(Limits(), run=run.name, step=0)
        is_image = isinstance(self.predictor, ImagePredictor)
        self.bodies, self.inputs = _images(self.predictor) if is_image else _sentences(self.loaded)

    def request(self, body: dict[str, Any]) -> Any:
        request = self.endpoint.read(validate(self.endpoint.schema.request, body))
        return request if self.endpoint.unpack is None else self.endpoint.unpack(request)

    def exchanges(self) -> list[Exchange]:
        """The requests, every eighth with its attention, and the answer to each alone."""
        detail = "maps" if isinstance(self.predictor, ImagePredictor) else "alignment"
        exchanges = []
        for n, plain in enumerate(self.bodies):
            body = {**plain, detail: self.endpoint.attends and n % ATTENDED == 0}
            (answer,) = self.endpoint.answer([self.request(body)])
            exchanges.append(Exchange(f"/v1/{self.endpoint.name}", json.dumps(body).encode(), answer))
        return exchanges

    def predict(self, inputs: Sequence[Any]) -> list[Any]:
        """What the endpoint computes, without the law: outputs as JSON that depend on the batch."""
        return [self.predictor.json(output) for output in self.predictor.predict(inputs)]


def _images(predictor: ImagePredictor[Any]) -> tuple[list[dict[str, Any]], list[Any]]:
    stats, draw, bodies, inputs = predictor.stats, np.random.default_rng(0), [], []
    for _ in range(PICTURES):
        held = io.BytesIO()
        Image.fromarray(draw.integers(0, 256, (64, 96, 3), np.uint8)).save(held, "PNG")
        bodies.append({"image": base64.b64encode(held.getvalue()).decode()})
        if stats.classes:
            bodies[-1]["top"] = len(stats.classes)
        inputs.append(ImageInput(read_pixels(held.getvalue(), stats)))
    return bodies, inputs


def _sentences(loaded: LoadedRun) -> tuple[list[dict[str, Any]], list[Any]]:
    texts = list(read(loaded.config).test.source[:SENTENCES])  # type: ignore[arg-type]
    return [{"text": text} for text in texts], texts


def _cost(served: Served) -> Row:
    """The CPU time of batches of the endpoint, divided by that of the predictor alone; the order alternates."""
    requests = [served.request(body) for body in served.bodies]
    ratios = []
    for start in range(0, max(1, len(requests) - BATCH + 1), BATCH):
        part = slice(start, start + BATCH)
        ways = [lambda at=part: served.endpoint.answer(requests[at]), lambda at=part: served.predict(served.inputs[at])]
        took = [0.0, 0.0]
        for n in (0, 1, 1, 0):
            before = time.process_time()
            ways[n]()
            took[n] += time.process_time() - before
        ratios.append(took[0] / took[1])
    clock = f"CPU time, n = {len(ratios)} batches"
    return Row(
        f"batches of {BATCH}", "answers : outputs that depend on the batch", "× the time", spread(ratios), COST, clock
    )


def _noise(served: Served) -> Row:
    """The largest change of a number between a batch and the input alone, as a share of the bound on it."""
    shares = [0.0]
    for start in range(0, len(served.inputs), BATCH):
        inputs = served.inputs[start : start + BATCH]
        for given, together in zip(inputs, served.predict(inputs), strict=True):
            (alone,) = served.predict([given])
            shares += _changes(together, alone, "")
    return amount(f"batches of {BATCH}", "change of numbers by the batch : bound", None, max(shares), 1)


def _changes(a: Any, b: Any, name: str) -> Iterator[float]:
    """|a − b| of each pair of numbers, as a share of the bound; nothing where the outputs are not the same."""
    if isinstance(a, float) and isinstance(b, float):
        yield abs(a - b) / max(noise_of(b, name), 1e-300)
    elif isinstance(a, dict) and isinstance(b, dict) and list(a) == list(b):
        for key in a:
            yield from _changes(a[key], b[key], key)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for one, other in zip(a, b, strict=True):
            yield from _changes(one, other, name)


@contextmanager
def service(run: Path, *options: str) -> Iterator[tuple[int, int]]:
    """Starts a service in a separate process; yields its port and process id."""
    command = [sys.executable, "-m", "regard", "serve", str(run), "--port", "0", "--threads", "1", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        if " at http://" not in said:
            raise RuntimeError(f"the service did not start: {said}")
        try:
            yield int(said.split(" at http://")[1].split(" ")[0].rpartition(":")[2]), process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def processor_time(pid: int) -> float:
    """CPU seconds of a process so far; NaN on systems without /proc."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


async def _client(port: int, right: Sequence[Exchange], numbers: "count[int]", until: float, load: Load) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    start = 0.0
    while start < until:
        start = time.perf_counter()
        one = right[next(numbers) % len(right)]
        head = f"POST {one.path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(one.body)}\r\n\r\n".encode() + one.body)
        told = (await reader.readuntil(b"\r\n\r\n")).decode("latin1").lower()
        body = await reader.readexactly(int(told.split("content-length: ")[1].split("\r\n")[0]))
        load.took.append(time.perf_counter() - start)
        status = int(told.split(" ")[1])
        load.statuses[status] += 1
        load.wrong += status == 200 and not one.agrees(json.loads(body))
    writer.close()
    await writer.wait_closed()


async def _clients(port: int, right: Sequence[Exchange], clients: int, seconds: float) -> Load:
    found, numbers = Load(), count()
    start = time.perf_counter()
    await asyncio.gather(*(_client(port, right, numbers, start + seconds, found) for _ in range(clients)))
    found.seconds = time.perf_counter() - start
    return found


def under_load(at: tuple[int, int], right: Sequence[Exchange], clients: int, seconds: float) -> Load:
    port, pid = at
    before = processor_time(pid)
    found = asyncio.run(_clients(port, right, clients, seconds))
    found.cpu = processor_time(pid) - before
    return found


def measure(run: Path, clients: int, seconds: float) -> Iterator[Row]:
    served = Served(run)
    yield _noise(served)
    yield _cost(served)
    right = served.exchanges()
    with service(run) as together, service(run, "--batch", "1") as alone:
        for at in (together, alone):  # warm
            under_load(at, right, clients, min(2.0, seconds))
        yield from _stood(under_load(together, right, clients, seconds), clients)
        rounds = _rounds(together, alone, right, clients, seconds / 4)
        yield _gained(rounds, clients, GAIN if served.endpoint.name == "translate" else None)
        for crowd in CROWDS:
            yield from _latencies(_rounds(together, alone, right, crowd, seconds / 4), crowd)


def _rounds(
    together: tuple[int, int], alone: tuple[int, int], right: Sequence[Exchange], clients: int, seconds: float
) -> list[tuple[Load, Load]]:
    """Loads of the service with batches and of that without, which alternate."""
    rounds = []
    for n in range(ROUNDS):
        ways = {at: under_load(at, right, clients, seconds) for at in ((together, alone), (alone, together))[n % 2]}
        rounds.append((ways[together], ways[alone]))
    return rounds


def _latencies(rounds: Sequence[tuple[Load, Load]], clients: int) -> Iterator[Row]:
    """Quantiles of the latency with batches, relative to those without."""
    case = f"{clients} client{'s' * (clients != 1)}"
    counts = " and ".join(f"{sum(len(pair[n].took) for pair in rounds):,}" for n in (0, 1))
    for share, name in ((0.5, "median latency"), (0.99, "99th percentile of the latency")):
        ratios = spread([pair[0].quantile(share) / pair[1].quantile(share) for pair in rounds])
        times = [spread([1e3 * pair[n].quantile(share) for pair in rounds]).median for n in (0, 1)]
        note = f"{times[0]:,.0f} to {times[1]:,.0f} ms"
        yield Row(case, f"{name}, together : one by one", "× the time", ratios, None, f"wall time, n = {counts}", note)


def _stood(load: Load, clients: int) -> Iterator[Row]:
    case = f"{clients} clients for {load.seconds:.0f} s"
    clock = f"wall time, n = {sum(load.statuses.values()):,}"
    per_cpu = f"{load.statuses[200] / load.cpu:,.0f} per CPU second of the service"
    yield amount(case, "requests answered per second", None, load.rate, clock=clock, note=per_cpu)
    yield amount(case, "median latency", "ms", 1e3 * load.quantile(0.5), clock=clock)
    yield amount(case, "99th percentile of the latency", "ms", 1e3 * load.quantile(0.99), clock=clock)
    yield amount(case, "wrong answers", None, load.wrong, 0, clock=clock)
    yield amount(case, "answers with status 5xx", None, load.faults, 0, clock=clock)
    others = sum(load.statuses.values()) - load.statuses[200] - load.faults
    yield amount(case, "answers with other statuses than 200", None, others, clock=clock)


def _gained(rounds: Sequence[tuple[Load, Load]], clients: int, bound: Bound | None) -> Row:
    ratio: Spread = spread([together.rate / alone.rate for together, alone in rounds])
    rates = " to ".join(f"{sum(pair[n].rate for pair in rounds) / len(rounds):,.0f}" for n in (0, 1))
    wrong = sum(one.wrong for pair in rounds for one in pair)
    costs = [sum(pair[n].cpu for pair in rounds) / sum(pair[n].statuses[200] for pair in rounds) for n in (0, 1)]
    spent = f"{1e3 * costs[0]:.1f} to {1e3 * costs[1]:.1f} CPU ms of the service per request"
    note = f"{rates} requests per second; {spent}; {wrong} wrong answers"
    clock = f"wall time, n = {len(rounds)} rounds"
    return Row(f"{clients} clients", "together : one by one", "× as fast", ratio, bound, clock, note)


def main(arguments: Sequence[str] | None = None) -> int:
    parsing = argparse.ArgumentParser(
        prog="python -m benchmarks.serving", description="Measure the HTTP service of a run under load."
    )
    parsing.add_argument("run", type=Path, metavar="RUN", help="the folder of a run")
    parsing.add_argument("--seconds", type=float, default=60, help="duration of the first load (%(default)s)")
    parsing.add_argument("--clients", type=int, default=32, help="clients at the same time (%(default)s)")
    parsing.add_argument("--results", type=Path, default=RESULTS, help="folder for the results (%(default)s)")
    given = parsing.parse_args(arguments)
    if not 0 < given.seconds <= 600 or not 1 <= given.clients <= 256:
        parsing.error(
            f"--seconds must be at most 600 and --clients at most 256, got {given.seconds:g} and {given.clients}"
        )
    about = About.now((*TEXT, "fastapi", "uvicorn", "h11"))
    try:
        rows = show(measure(given.run, given.clients, given.seconds))
    except (ValueError, OSError) as error:
        print(f"{given.run}: {error}", file=sys.stderr)
        return 1
    config = read_config(given.run)
    results = Results(about, rows, HOW_SEEN if config.input_kind == "image" else HOW)
    print(f"\n{summary(rows)} Written to {results.write(given.results / f'serving{NAMES[config.name]}.json')}.")
    return 0 if all(row.verdict in ("", "reached") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
