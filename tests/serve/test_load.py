"""The load test itself: it counts what is right and catches what is wrong."""

import copy
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import serving
from tests.serve.conftest import Make, post

from regard.cli.main import main
from regard.inference.limits import Limits
from regard.serve.server import listen, server
from regard.tasks.loading import load
from regard.tasks.registry import TASKS


@pytest.fixture
def here(translating: Make, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Services in threads of this process."""

    @contextmanager
    def service(run: Path, *options: str) -> Iterator[tuple[int, int]]:
        limits = {"batch": 1} if "--batch" in options else {}
        served = translating(**limits)
        with listen("127.0.0.1", 0) as at:
            made = server(served, served.limits, host="127.0.0.1")
            thread = threading.Thread(target=made.run, kwargs={"sockets": [at]})
            thread.start()
            try:
                yield at.getsockname()[1], os.getpid()
            finally:
                made.should_exit = True
                thread.join(20)

    monkeypatch.setattr(serving, "service", service)
    threads = torch.get_num_threads()
    yield translating
    torch.set_num_threads(threads)


def test_the_table(here: Make, run: Path) -> None:
    rows = list(serving.measure(run, clients=5, seconds=0.4))
    assert [row.compared for row in rows] == [
        "requests answered per second",
        "median latency",
        "99th percentile of the latency",
        "wrong answers",
        "answers with status 5xx",
        "answers with other statuses than 200",
        "together : one by one",
    ]
    values = [row.measured.median for row in rows if row.measured is not None]
    assert values[0] > 0
    assert 0 < values[1] <= values[2]
    assert values[3:6] == [0, 0, 0]
    assert [row.verdict for row in rows[3:5]] == ["reached", "reached"]


def test_a_wrong_answer_is_caught() -> None:
    weights = torch.tensor([[0.25, 0.75]])
    right = serving.Right(b"", "a", -1.0, weights)

    def answer(text: str = "a", score: float = -1.0, weights: object = ((0.25, 0.75),)) -> dict[str, object]:
        one = {"text": text, "score": score, "alignment": {"weights": weights}}
        return {"answers": [{"translations": [one]}]}

    assert right.agrees(answer())
    assert not right.agrees(answer(text="b"))
    assert not right.agrees(answer(score=-1.1))
    assert not right.agrees(answer(weights=[[0.75, 0.25]]))
    assert not right.agrees(answer(weights=[[0.25, 0.75], [0.25, 0.75]]))
    assert not serving.Right(b"", "a", -1.0, None).agrees(answer())


def test_it_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serving.main(["run", "--seconds", "3600"])
    assert "--seconds must be at most 600 and --clients at most 256, got 3600 and 32" in capsys.readouterr().err


def test_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert serving.main([str(tmp_path / "none")]) == 1
    assert "there is no run" in capsys.readouterr().err


def wrong(answer: Any, part: str) -> Any:
    """The answer with a little changed."""
    changed = copy.deepcopy(answer)
    (one,) = changed["answers"]
    if part == "classes":
        one["classes"][0]["probability"] += 0.01
    elif part == "path":
        one["path"][-1]["y"] += 0.01
    elif part == "text":
        one["text"] += "!"
    else:
        one["maps"][0]["weights"][0][0][0] += 0.01
    return changed


RUNS = {
    "classify-image": ("--data digits --gate simam --width 2 --depths 1", ["classes"]),
    "glimpse": ("--data digits --glimpses 2 --what 4 --where 4 --glimpse 6 --hidden 8", ["classes", "path"]),
    "caption": ("--data scenes --annotation 8 --channels 4 --width 6 --hidden 8", ["text"]),
}


@pytest.mark.parametrize("task", RUNS)
def test_pictures_under_load(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer of a service of pictures is the one that the run gives alone; a wrong one is caught."""
    options, parts = RUNS[task]
    threads = torch.get_num_threads()
    try:
        many = "--batch 400 --threads 1 --steps 1"
        assert main(["train", task, *options.split(), *many.split(), "--out", str(tmp_path / "run")]) == 0
        monkeypatch.setattr(serving, "PICTURES", 9)
        right = serving.answers(tmp_path / "run")
        made = load(tmp_path / "run", device="cpu").endpoint(Limits(), run="tiny", step=1)
    finally:
        torch.set_num_threads(threads)
    images = {name for name, config in TASKS.items() if config.input_kind == "image" and config.is_served}
    assert set(serving.NAMES) == {"translate", *images}
    looked = [one.maps is not None for one in right]  # type: ignore[union-attr]
    assert looked == [n % 8 == 0 for n in range(9)]
    for one, maps in zip(right, looked, strict=True):
        assert one.path == f"/v1/{made.name}"
        answer = post(made, one.body).json()
        assert one.agrees(answer)
        for part in [*parts, *["maps"] * maps]:
            assert not one.agrees(wrong(answer, part))
