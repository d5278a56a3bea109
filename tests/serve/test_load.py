"""The load test itself: it counts what is right and catches what is wrong."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from benchmarks import serving
from tests.product import first
from tests.serve.conftest import Make, post, running_models, trained

from regard.inference.limits import Limits
from regard.serve.rounding import noise_of
from regard.serve.served_model import ServedModel
from regard.tasks.loading import load
from regard.tasks.registry import TASKS


@pytest.fixture
def here(translating: Make, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Services in threads of this process."""

    @contextmanager
    def service(run: Path, *options: str) -> Iterator[tuple[int, int]]:
        limits = {"batch": 1} if "--batch" in options else {}
        served = translating(**limits)
        with running_models([ServedModel(served, served.limits)]) as (address, _):
            yield int(address.rpartition(":")[2]), os.getpid()

    monkeypatch.setattr(serving, "service", service)
    threads = torch.get_num_threads()
    yield translating
    torch.set_num_threads(threads)


@pytest.mark.whole
def test_the_table(here: Make, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SENTENCES", 64)
    rows = list(serving.measure(run, clients=5, seconds=0.4))
    assert [row.compared for row in rows] == [
        "change of numbers by the batch : bound",
        "answers : outputs that depend on the batch",
        "requests answered per second",
        "median latency",
        "99th percentile of the latency",
        "wrong answers",
        "answers with status 5xx",
        "answers with other statuses than 200",
        "together : one by one",
        *["median latency, together : one by one", "99th percentile of the latency, together : one by one"] * 3,
    ]
    assert rows[0].verdict == "reached"
    rows = rows[2:]
    values = [row.measured.median for row in rows if row.measured is not None]
    assert values[0] > 0
    assert 0 < values[1] <= values[2]
    assert values[3:6] == [0, 0, 0]
    assert [row.verdict for row in rows[3:5]] == ["reached", "reached"]


def test_a_wrong_answer_is_caught() -> None:
    right = serving.Exchange("/v1/classify", b"", {"answers": [{"classes": {"a": 0.5, "b": 0.25}}]})
    assert right.agrees({"answers": [{"classes": {"a": 0.5, "b": 0.25}}]})
    assert not right.agrees({"answers": [{"classes": {"b": 0.25, "a": 0.5}}]})
    assert not right.agrees({"answers": [{"classes": {"a": 0.5, "b": 0.2501}}]})
    assert not right.agrees({"answers": [{"classes": {"a": 0.5, "b": 0.25}, "maps": []}]})


def test_changes_are_shares_of_their_bounds() -> None:
    bound = noise_of(-2.0, "log_prob")
    together, alone = {"a": [{"log_prob": -2.0 + bound / 2, "text": "a"}]}, {"a": [{"log_prob": -2.0, "text": "a"}]}
    assert list(serving._changes(together, alone, "")) == [pytest.approx(0.5)]
    assert not list(serving._changes({"a": 1.0}, {"b": 1.0}, ""))


def test_it_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serving.main(["run", "--seconds", "3600"])
    assert "--seconds must be at most 600 and --clients at most 256, got 3600 and 32" in capsys.readouterr().err


def test_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert serving.main([str(tmp_path / "none")]) == 1
    assert "there is no run" in capsys.readouterr().err


RUNS = {
    "classify-image": "--data digits --gate simam --width 2 --depths 1",
    "glimpse": "--data digits --glimpses 2 --what 4 --where 4 --glimpse 6 --hidden 8",
    "caption": "--data scenes --annotation 8 --channels 4 --width 6 --hidden 8",
}


@pytest.mark.parametrize("task", first(RUNS))
def test_pictures_under_load(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer of a service of pictures is the one that the run gives alone."""
    run = trained(tmp_path / "run", task, f"{RUNS[task]} --batch 400 --steps 1")
    monkeypatch.setattr(serving, "PICTURES", 9)
    exchanges = serving.Served(run).exchanges()
    made = load(run, device="cpu").endpoint(Limits(), run="tiny", step=1)
    images = {name for name, config in TASKS.items() if config.input_kind == "image" and config.is_served}
    assert set(serving.NAMES) == {"translate", *images}
    attended = ["maps" in exchange.answer["answers"][0] for exchange in exchanges]
    assert attended == [n % 8 == 0 for n in range(9)]
    for exchange in exchanges:
        assert exchange.path == f"/v1/{made.name}"
        assert exchange.agrees(post(made, exchange.body).json())
