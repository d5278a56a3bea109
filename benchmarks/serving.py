"""The HTTP service under load: throughput, latency, correctness, and the gain of batching.

    python -m benchmarks.serving RUN [--seconds 60] [--clients 32]

`regard serve RUN` runs in a separate process on this machine. Each client sends its next request as soon as it has an
answer: one sentence, beam 5, every eighth with its alignment; or, for a run of an image task, one image, every eighth
with its maps. Every answer is compared with the output of the model for the same input alone, computed beforehand. Then
the same clients alternate between a service with batching and one without.
"""

import argparse
import asyncio
import base64
import datetime
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

from benchmarks import machine
from benchmarks.measured import About
from benchmarks.report import RESULTS
from benchmarks.table import HEADINGS, Bound, Row, amount, line, markdown, summary
from benchmarks.timing import Spread, spread
from regard.decoding.search import Beam
from regard.inference.limits import Limits
from regard.inference.predictor import predict_recorded
from regard.recording.record import record
from regard.tasks._image_data import read_pixels
from regard.tasks._image_endpoint import ImageEndpoint
from regard.tasks._image_maps import spatial_maps
from regard.tasks._image_predictors import ImageInput, ImagePredictor
from regard.tasks.loading import LoadedRun, load_run
from regard.tasks.registry import read_config
from regard.tasks.translate.predictor import Translator
from regard.tasks.translate.task import read

SENTENCES, PICTURES, LOOKED, ROUNDS = 400, 200, 8, 3
# suffixes of the names of result files, by task
NAMES = {"translate": "", "classify-image": "-pictures", "glimpse": "-glimpses", "caption": "-captions"}
# the tolerance of scores and weights
SLACK = 1e-4
GAIN = Bound("least", 3)

HOW = """\
Clients and service run on the same machine, over loopback, with persistent connections; a client sends its next request
as soon as it has an answer. A request has one sentence, beam 5; every eighth asks for the alignment. Every answer is
compared with the output for the same sentence alone, computed beforehand: text, score and weights, within 1e-4. "One by
one" is the same service with `--batch 1`; both services alternate, and the ratio is computed within each round.
"""
HOW_SEEN = """\
Clients and service run on the same machine, over loopback, with persistent connections; a client sends its next
request as soon as it has an answer. A request has one image, 96 by 64 pixels of noise as PNG; every eighth asks for
the attention maps. Every answer is compared with the output for the same image alone, computed beforehand: the
caption, and within 1e-4 probabilities, locations of glimpses and weights. "One by one" is the same service with
`--batch 1`; both services alternate, and the ratio is computed within each round.
"""


@dataclass(frozen=True, eq=False)
class Right:
    """A request with a text, and the right answer."""

    body: bytes
    text: str
    score: float
    weights: torch.Tensor | None
    path = "/v1/translate"

    def agrees(self, answer: dict[str, list[dict[str, list[dict[str, object]]]]]) -> bool:
        found = answer["answers"][0]["translations"][0]
        same = found["text"] == self.text and abs(float(str(found["score"])) - self.score) < SLACK
        if not same or self.weights is None:
            return same and "alignment" not in found
        looked = torch.tensor(found["alignment"]["weights"])  # type: ignore[call-overload,index]
        return looked.shape == self.weights.shape and bool((looked - self.weights).abs().max() < SLACK)


@dataclass(frozen=True, eq=False)
class RightImage:
    """A request with an image, and the right answer: the output of the model as JSON, and its maps if asked for."""

    body: bytes
    path: str
    output: dict[str, Any]
    maps: tuple[torch.Tensor, ...] | None

    def agrees(self, answer: Any) -> bool:
        (found,) = answer["answers"]
        same = (
            found.keys() - {"maps"} == self.output.keys()
            and found.get("text") == self.output.get("text")
            and found.get("words") == self.output.get("words")
            and _near(_probabilities(found), _probabilities(self.output))
            and _near(_places(found), _places(self.output))
        )
        if not same or self.maps is None:
            return same and "maps" not in found
        maps = [torch.tensor(each["weights"]) for each in found["maps"]]
        return len(maps) == len(self.maps) and all(_near(a, b) for a, b in zip(maps, self.maps, strict=True))


def _probabilities(output: dict[str, Any]) -> torch.Tensor:
    """Of the classes in the order of their names: classes of nearly equal probability may be in either order."""
    rows = sorted((each["name"], each["probability"]) for each in output.get("classes", ()))
    return torch.tensor([probability for _, probability in rows])


def _places(output: dict[str, Any]) -> torch.Tensor:
    return torch.tensor([(place["x"], place["y"]) for place in output.get("path", ())])


def _near(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool(((a - b).abs() < SLACK).all())


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


def answers(run: Path) -> "Sequence[Right | RightImage]":
    """Requests, and the answer that the run gives to each alone."""
    if (name := read_config(run).name) not in NAMES:
        raise ValueError(f"it is a run of {name}, which is not measured; name a run of {', '.join(NAMES)}")
    loaded = load_run(run, "best", "cpu")
    torch.set_num_threads(1)
    predictor = loaded.predictor
    return _image_answers(predictor) if isinstance(predictor, ImagePredictor) else _translations(loaded)


def _image_answers(predictor: ImagePredictor[Any]) -> list[RightImage]:
    stats, draw, made = predictor.stats, np.random.default_rng(0), []
    attends = ImageEndpoint(predictor, Limits(), run="", step=0).attends
    for n in range(PICTURES):
        held = io.BytesIO()
        Image.fromarray(draw.integers(0, 256, (64, 96, 3), np.uint8)).save(held, "PNG")
        given = ImageInput(read_pixels(held.getvalue(), stats))
        asked = attends and n % LOOKED == 0
        maps = None
        if asked:
            (output,), recording = predict_recorded(predictor, [given], record=lambda: record(predictor.model))
            maps = tuple(each.weights for each in spatial_maps(recording, 0))
        else:
            (output,) = predictor.predict([given])
        body = {"image": base64.b64encode(held.getvalue()).decode(), "maps": asked}
        if stats.classes:
            body["top"] = len(stats.classes)
        answer = predictor.answer(output, max(len(stats.classes), 1))
        made.append(RightImage(json.dumps(body).encode(), f"/v1/{predictor.served_as}", answer, maps))
    return made


def _translations(loaded: LoadedRun) -> list[Right]:
    translator = loaded.predictor
    assert isinstance(translator, Translator)
    made = []
    for n, text in enumerate(read(loaded.config).test.source[:SENTENCES]):  # type: ignore[arg-type]
        ((best,),) = translator.translate([text], Beam(5))
        looked = translator.attends and n % LOOKED == 0
        weights = translator.align([text], [best])[0].weights if looked else None
        made.append(Right(json.dumps({"text": text, "alignment": looked}).encode(), best.text, best.score, weights))
    return made


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


async def _client(
    port: int, right: "Sequence[Right | RightImage]", numbers: "count[int]", until: float, load: Load
) -> None:
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


async def _clients(port: int, right: "Sequence[Right | RightImage]", clients: int, seconds: float) -> Load:
    found, numbers = Load(), count()
    start = time.perf_counter()
    await asyncio.gather(*(_client(port, right, numbers, start + seconds, found) for _ in range(clients)))
    found.seconds = time.perf_counter() - start
    return found


def under_load(at: tuple[int, int], right: "Sequence[Right | RightImage]", clients: int, seconds: float) -> Load:
    port, pid = at
    before = processor_time(pid)
    found = asyncio.run(_clients(port, right, clients, seconds))
    found.cpu = processor_time(pid) - before
    return found


def measure(run: Path, clients: int, seconds: float) -> Iterator[Row]:
    right = answers(run)
    with service(run) as together, service(run, "--batch", "1") as alone:
        for at in (together, alone):  # warm
            under_load(at, right, clients, min(2.0, seconds))
        yield from _stood(under_load(together, right, clients, seconds), clients)
        rounds = []
        for n in range(ROUNDS):
            ways = {
                at: under_load(at, right, clients, seconds / 4) for at in ((together, alone), (alone, together))[n % 2]
            }
            rounds.append((ways[together], ways[alone]))
        yield _gained(rounds, clients, GAIN if isinstance(right[0], Right) else None)


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
    about = About.now()
    print(line([heading.upper() for heading in HEADINGS]), flush=True)
    rows = []
    try:
        for row in measure(given.run, given.clients, given.seconds):
            rows.append(row)
            print(line(row.cells()), flush=True)
    except (ValueError, OSError) as error:
        print(f"{given.run}: {error}", file=sys.stderr)
        return 1
    date = datetime.date.today().isoformat()
    served_by = ", ".join(f"{name} {machine.version(name)}" for name in ("fastapi", "uvicorn", "h11"))
    facts = [f"date: {date}", f"{about.where()}, {served_by}", f"load before: {about.machine['load before']}"]
    facts.append(f"run: {given.run.name}")
    told = f"# HTTP service under load, measured on {date}\n\n" + "".join(f"- {fact}\n" for fact in facts)
    config = read_config(given.run)
    path = given.results / f"serving{NAMES[config.name]}-{date}.md"
    how = HOW_SEEN if config.input_kind == "image" else HOW
    path.write_text(f"{told}\n{how}\n{summary(rows)}\n\n{markdown(rows)}", encoding="utf-8")
    print(f"\n{summary(rows)} Written to {path}.")
    return 0 if all(row.verdict in ("", "reached") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
