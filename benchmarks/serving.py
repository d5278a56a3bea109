"""A service under load: how many requests it answers, how fast, whether rightly, and what answering together gains.

    python -m benchmarks.serving RUN [--seconds 60] [--clients 32]

`regard serve RUN` in a process of its own on this machine, and as many clients as asked for that ask again as soon as
they are answered: one sentence each, by beam 5, every eighth with its alignment; or, of a run that looks at pictures,
one picture each, every eighth with its maps. Every answer is compared with what the model said beforehand, one at a
time. Then the same clients ask a service that answers together and one that answers one by one, in turns.
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
from regard.cli.loading import load, recorded
from regard.cli.sights import SIGHTS
from regard.common import image_files
from regard.decoding.search import Beam
from regard.inference.limits import Limits
from regard.recording.record import record
from regard.serve.image_endpoint import ImageEndpoint
from regard.serve.spatial_maps import spatial_maps
from regard.tasks._image_predictors import Sight, Sighted, watched
from regard.tasks.translate.task import read

SENTENCES, PICTURES, LOOKED, ROUNDS = 400, 200, 8, 3
# what the result of a run of each kind is called
NAMES = {"Translate": "", "ClassifyImage": "-pictures", "Glimpse": "-glimpses", "Caption": "-captions"}
# what rounding may change of a score and of a weight
SLACK = 1e-4
GAIN = Bound("least", 3)

HOW = """\
Clients and service share the machine, over loopback, connections kept; a client asks again as soon as it is answered.
Requests have one sentence and beam 5, every eighth asks for its alignment. Every answer is compared with what was said
beforehand, one sentence at a time: its text, its score within 1e-4, its weights within 1e-4. "One by one" is the same
service with `--batch 1`; both ways take turns, and the ratio is taken inside each round.
"""
HOW_SEEN = """\
Clients and service share the machine, over loopback, connections kept; a client asks again as soon as it is answered.
Requests have one picture, 96 by 64 pixels of noise as PNG, every eighth asks for maps of where the model looked. Every
answer is compared with what was said beforehand, one picture at a time: its sentence; probabilities, places of glimpses
and weights within 1e-4. "One by one" is the same service with `--batch 1`; both ways take turns, and the ratio is taken
inside each round.
"""


@dataclass(frozen=True, eq=False)
class Right:
    """A request and what must be answered."""

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
class Seen:
    """A picture and what must be said of it: a probability of each class, a path of glimpses or a sentence, whichever
    the model has, and a map of each module that looks."""

    body: bytes
    path: str
    said: Sighted
    looks: tuple[torch.Tensor, ...] | None

    def agrees(self, answer: Any) -> bool:
        (found,) = answer["answers"]
        chances, wanted = {one["name"]: one["probability"] for one in found.get("classes", ())}, dict(self.said.classes)
        places = [(one["x"], one["y"]) for one in found.get("path", ())]
        same = (
            found.get("text", "") == self.said.text
            and len(found.get("words", ())) == len(self.said.pieces)
            and chances.keys() == wanted.keys()
            and all(abs(chance - wanted[name]) < SLACK for name, chance in chances.items())
            and _near(torch.tensor(places), torch.tensor(self.said.places))
        )
        if not same or self.looks is None:
            return same and "maps" not in found
        maps = [torch.tensor(one["weights"]) for one in found["maps"]]
        return len(maps) == len(self.looks) and all(_near(a, b) for a, b in zip(maps, self.looks, strict=True))


def _near(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool(((a - b).abs() < SLACK).all())


@dataclass
class Load:
    """What the clients found."""

    seconds: float = 0.0
    cpu: float = 0.0  # of the service
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


def answers(run: Path) -> "Sequence[Right | Seen]":
    """What the run is asked, and what it says to each alone."""
    kind = recorded(run).kind
    return _seen(SIGHTS[kind](run, "best", "cpu", 1).by) if kind in SIGHTS else _said(run)


def _seen(sight: Sight) -> list[Seen]:
    facts, draw, made = sight.facts, np.random.default_rng(0), []
    attends = ImageEndpoint(sight, Limits(), run="", step=0).attends
    for n in range(PICTURES):
        held = io.BytesIO()
        Image.fromarray(draw.integers(0, 256, (64, 96, 3), np.uint8)).save(held, "PNG")
        shape = {"size": (facts.width, facts.height), "mode": "L" if facts.channels == 1 else "RGB"}
        pixels = image_files.read(held.getvalue(), **shape)[None]  # type: ignore[arg-type]
        maps = attends and n % LOOKED == 0
        ((one,), tape) = watched(sight, pixels, lambda: record(sight.model)) if maps else (sight.see(pixels), None)
        body = {"image": base64.b64encode(held.getvalue()).decode(), "maps": maps}
        if facts.classes:
            body["top"] = len(facts.classes)
        found = None if tape is None else tuple(look.weights for look in spatial_maps(tape, 0))
        made.append(Seen(json.dumps(body).encode(), f"/v1/{sight.name}", one, found))
    return made


def _said(run: Path) -> list[Right]:
    loaded = load(run, "best", "cpu", 1)
    lines = list(read(loaded.task).test.source[:SENTENCES])
    made = []
    for n, text in enumerate(lines):
        ((said,),) = loaded.by.translate([text], Beam(5))
        looked = loaded.task.decoder != "fixed" and n % LOOKED == 0
        weights = loaded.by.align([text], [said])[0].weights if looked else None
        made.append(Right(json.dumps({"text": text, "alignment": looked}).encode(), said.text, said.score, weights))
    return made


@contextmanager
def service(run: Path, *options: str) -> Iterator[tuple[int, int]]:
    """A service of its own: its port and its process id."""
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
    """Seconds of the processor that a process took so far; NaN where the system does not tell."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


async def _client(port: int, right: "Sequence[Right | Seen]", numbers: "count[int]", until: float, load: Load) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (start := time.perf_counter()) < until:
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


async def _clients(port: int, right: "Sequence[Right | Seen]", clients: int, seconds: float) -> Load:
    found, numbers = Load(), count()
    start = time.perf_counter()
    await asyncio.gather(*(_client(port, right, numbers, start + seconds, found) for _ in range(clients)))
    found.seconds = time.perf_counter() - start
    return found


def under_load(at: tuple[int, int], right: "Sequence[Right | Seen]", clients: int, seconds: float) -> Load:
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
    per_cpu = f"{load.statuses[200] / load.cpu:,.0f} a second of the service's processor"
    yield amount(case, "requests answered a second", None, load.rate, clock=clock, note=per_cpu)
    yield amount(case, "half of the requests within", "ms", 1e3 * load.quantile(0.5), clock=clock)
    yield amount(case, "99 of 100 within", "ms", 1e3 * load.quantile(0.99), clock=clock)
    yield amount(case, "wrong answers", None, load.wrong, 0, clock=clock)
    yield amount(case, "answers of status 5xx", None, load.faults, 0, clock=clock)
    others = sum(load.statuses.values()) - load.statuses[200] - load.faults
    yield amount(case, "answers of other statuses than 200", None, others, clock=clock)


def _gained(rounds: Sequence[tuple[Load, Load]], clients: int, bound: Bound | None) -> Row:
    ratio: Spread = spread([together.rate / alone.rate for together, alone in rounds])
    rates = " to ".join(f"{sum(pair[n].rate for pair in rounds) / len(rounds):,.0f}" for n in (0, 1))
    wrong = sum(one.wrong for pair in rounds for one in pair)
    costs = [sum(pair[n].cpu for pair in rounds) / sum(pair[n].statuses[200] for pair in rounds) for n in (0, 1)]
    spent = f"{1e3 * costs[0]:.1f} to {1e3 * costs[1]:.1f} ms of the service's processor a request"
    note = f"{rates} requests a second; {spent}; {wrong} wrong answers"
    clock = f"wall time, n = {len(rounds)} rounds"
    return Row(f"{clients} clients", "together : one by one", "× as fast", ratio, bound, clock, note)


def main(arguments: Sequence[str] | None = None) -> int:
    parsing = argparse.ArgumentParser(prog="python -m benchmarks.serving", description="A service under load.")
    parsing.add_argument("run", type=Path, metavar="RUN", help="the folder of a training")
    parsing.add_argument("--seconds", type=float, default=60, help="of the first load (%(default)s)")
    parsing.add_argument("--clients", type=int, default=32, help="that ask at the same time (%(default)s)")
    parsing.add_argument("--results", type=Path, default=RESULTS, help="where to write (%(default)s)")
    given = parsing.parse_args(arguments)
    if not 0 < given.seconds <= 600 or not 1 <= given.clients <= 256:
        parsing.error(f"at most 600 seconds and 256 clients, got {given.seconds:g} and {given.clients}")
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
    told = f"# A service under load, as measured on {date}\n\n" + "".join(f"- {fact}\n" for fact in facts)
    kind = recorded(given.run).kind
    path = given.results / f"serving{NAMES[kind]}-{date}.md"
    how = HOW_SEEN if kind in SIGHTS else HOW
    path.write_text(f"{told}\n{how}\n{summary(rows)}\n\n{markdown(rows)}", encoding="utf-8")
    print(f"\n{summary(rows)} Written to {path}.")
    return 0 if all(row.verdict in ("", "reached") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
