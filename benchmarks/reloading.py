"""A service under load while its model is exchanged: lost and mixed answers, and what the exchange costs.

    python -m benchmarks.reloading [--clients 16] [--requests 1000] [--reloads 10]

Two classifiers of texts are trained for a moment, with other seeds. `regard serve LINK` runs in a process of its own;
the link is changed from one to the other and SIGHUP is sent, again and again, while each client sends its requests one
after the other on its own connection. An answer must have status 200, and be the one that the model of its
X-Model-Version gives alone. Afterwards a run is damaged and the process killed: the old model must go on, and a loop
that stands for systemd must start the service again.
"""

import argparse
import asyncio
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks import measured
from benchmarks.measured import About
from benchmarks.report import RESULTS
from regard.cli.main import main as regard

TEXTS = [" ".join(words) for words in itertools.permutations("abcdefg", 3)]


@dataclass(frozen=True)
class Outcome:
    """Counts of the requests, and times in seconds."""

    about: About
    clients: int
    requests: int
    reloads: int
    lost: int
    mixed: int
    by_version: dict[str, int]
    slowest: float
    half_within: float
    during_reloads: float  # half of the requests within, that were open during a reload
    reload_seconds: list[float]
    megabytes_before: float
    megabytes_after: float
    refused_reload_kept_the_model: bool
    killed_was_restarted: bool


class SupervisedService:
    """`regard serve` in a loop that starts it again when it ends by an error, as systemd does."""

    def __init__(self, run: Path, port: int) -> None:
        self.command = [sys.executable, "-m", "regard", "serve", str(run), "--port", str(port)]
        self.address = f"http://127.0.0.1:{port}"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert " is served at " in self.process.stdout.readline()

    def restart_if_ended(self) -> bool:
        if self.process.wait(60) == 0:
            return False
        self.start()
        return True

    def version(self) -> str:
        return str(httpx.get(f"{self.address}/v1/model", timeout=60).json()["version"])

    def reloads(self) -> float:
        lines = httpx.get(f"{self.address}/metrics", timeout=60).text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("regard_reloads_total"))

    def megabytes(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(status.split("VmRSS:")[1].split()[0]) / 1e3


def trained(folder: Path, name: str, seed: int) -> Path:
    data = folder / "texts.tsv"
    data.write_text("".join(f"{'good' if n % 3 else 'bad'}\t{text}\n" for n, text in enumerate(TEXTS)))
    out = folder / name
    options = f"--width 16 --hidden 16 --steps 20 --batch 64 --threads 1 --seed {seed}"
    assert regard(["train", "classify-text", "--train", str(data), *options.split(), "--out", str(out)]) == 0
    assert regard(["check", str(out), TEXTS[0], "--write-manifest"]) == 0
    return out


def point(link: Path, run: Path) -> None:
    new = link.with_name("new")
    new.symlink_to(run)
    new.replace(link)


async def client(address: str, texts: Sequence[str], found: list[tuple[int, str, str, Any, float, float]]) -> None:
    async with httpx.AsyncClient(timeout=60) as session:
        for text in texts:
            start = time.perf_counter()
            try:
                answer = await session.post(f"{address}/v1/classify-text", json={"text": text, "top": 2})
                said = answer.status_code, answer.headers.get("x-model-version", ""), answer.json()
            except httpx.HTTPError as error:
                said = 0, "", repr(error)
            found.append((said[0], said[1], text, said[2], start, time.perf_counter()))


async def reload_often(
    service: SupervisedService, link: Path, runs: Sequence[Path], count: int, share: Callable[[], float] = lambda: 1.0
) -> list[tuple[float, float]]:
    """The times of reloads, each as soon as its share of the requests is answered."""
    times = []
    for n in range(count):
        while share() < (n + 0.5) / (count + 1):
            await asyncio.sleep(0.02)
        point(link, runs[(n + 1) % 2])
        before, start = await asyncio.to_thread(service.reloads), time.perf_counter()
        service.process.send_signal(signal.SIGHUP)
        while await asyncio.to_thread(service.reloads) == before:
            await asyncio.sleep(0.02)
        times.append((start, time.perf_counter()))
    return times


def measure(clients: int, requests: int, reloads: int, port: int) -> Outcome:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = [trained(folder, f"run{seed}", seed) for seed in (1, 2)]
        link = folder / "model"
        link.symlink_to(runs[0])
        service = SupervisedService(link, port)
        try:
            alone: dict[str, dict[str, Any]] = {}
            for run in (runs[1], runs[0]):
                asyncio.run(reload_often(service, link, [run, run], 1))
                answers: list[Any] = []
                asyncio.run(client(service.address, TEXTS, answers))
                alone[service.version()] = {text: said for _, _, text, said, _, _ in answers}
            assert len(alone) == 2
            before = service.megabytes()
            found: list[Any] = []

            async def load() -> list[tuple[float, float]]:
                texts = [[TEXTS[(n * 7 + i) % len(TEXTS)] for i in range(requests)] for n in range(clients)]
                *_, times = await asyncio.gather(
                    *(client(service.address, each, found) for each in texts),
                    reload_often(service, link, runs, reloads, lambda: len(found) / (clients * requests)),
                )
                return times

            times = asyncio.run(load())
            last_request = max(end for *_, end in found)
            assert sum(end <= last_request for _, end in times) == reloads, "reloads must end before the load does"
            after = service.megabytes()
            current = service.version()
            damaged = folder / "damaged"
            shutil.copytree(runs[0], damaged)
            (damaged / "best.safetensors").write_bytes(b"damaged")
            asyncio.run(reload_often(service, link, [damaged, damaged], 1))
            kept = service.version() == current
            point(link, runs[1])
            os.kill(service.process.pid, signal.SIGKILL)
            restarted = service.restart_if_ended() and service.version() in alone
        finally:
            service.process.terminate()
            service.process.wait(60)
    seconds = [end - start for *_, start, end in found]
    during = [end - start for *_, start, end in found if any(start < b and end > a for a, b in times)]
    return Outcome(
        about=About.now(("torch", "fastapi", "uvicorn")),
        clients=clients,
        requests=len(found),
        reloads=reloads,
        lost=sum(status != 200 for status, *_ in found) + clients * requests - len(found),
        mixed=sum(s == 200 and said != alone.get(v, {}).get(text) for s, v, text, said, _, _ in found),
        by_version=dict(Counter(version for _, version, *_ in found)),
        slowest=max(seconds),
        half_within=float(np.median(seconds)),
        during_reloads=float(np.median(during)),
        reload_seconds=[round(b - a, 3) for a, b in times],
        megabytes_before=before,
        megabytes_after=after,
        refused_reload_kept_the_model=kept,
        killed_was_restarted=restarted,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=1000, help="per client")
    parser.add_argument("--reloads", type=int, default=10)
    parser.add_argument("--port", type=int, default=8391)
    options = parser.parse_args()
    outcome = measure(options.clients, options.requests, options.reloads, options.port)
    print(json.dumps(asdict(outcome), indent=2))
    measured.write(RESULTS / "reloading.json", outcome)


if __name__ == "__main__":
    main()
