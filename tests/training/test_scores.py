"""What validation decides: the best, patience, the plateau, the average."""

import dataclasses
from pathlib import Path

import pytest
import torch
from tests.training.toy import Toy, ToyProblem, metrics, of, run, weights
from torch import nn

from regard.training import checkpoint, fit
from regard.training.config import TrainingConfig
from regard.training.events import Saved, StepLogged, Stopped, Validated
from regard.training.protocol import ValidationResult
from regard.training.state import is_better


@dataclasses.dataclass(frozen=True)
class Scored(Toy):
    """Validation tells these scores, one after the other."""

    scores: tuple[float, ...] = ()
    higher: bool = True
    nlls: tuple[float, ...] = ()


class ScoredProblem(ToyProblem):
    validations = 0

    def validate(self, model: nn.Module) -> ValidationResult:
        assert not model.training
        assert not torch.is_grad_enabled()
        self.validations += 1
        value = self.task.scores[self.validations - 1]
        nll = {"nll": self.task.nlls[self.validations - 1]} if self.task.nlls else {}
        return ValidationResult({"bleu": value, **nll}, "bleu", self.task.higher)


Scored.problem = ScoredProblem


def test_the_best_is_kept(tmp_path: Path) -> None:
    task = Scored(scores=(1.0, 3.0, 2.0, float("nan"), 3.0))
    events = run(tmp_path, task, steps=10, validate_every=2)
    assert [event.improved for event in of(Validated, events)] == [True, True, False, False, False]
    best = checkpoint.read(tmp_path / "best.safetensors")
    assert best.facts == {"format": 2, "step": 4, "score": {"bleu": 3.0}, "main": "bleu"}
    lines = [line for line in metrics(tmp_path) if line["kind"] == "validation"]
    assert [line["bleu"] for line in lines] == [1.0, 3.0, 2.0, None, 3.0], "JSON has no NaN"


def test_patience_ends_a_run(tmp_path: Path) -> None:
    task = Scored(scores=(3.0, 2.0, 4.0, 4.5, 4.4, 0.0), higher=False)
    events = run(tmp_path, task, steps=100, validate_every=3, patience=3)
    assert (events[-1].reason, events[-1].step) == ("patience", 15)
    assert events[-1].text == "3 validations in a row brought no improvement, at step 15 of 100"
    again = run(tmp_path, task, resume=True, steps=100, validate_every=3, patience=3)
    assert again[-1].text == (
        "nothing is left to train: 3 validations in a row brought no improvement, at step 15 of 100; "
        "raise patience=3 to go on"
    )
    events = run(tmp_path, task, resume=True, steps=18, validate_every=3, patience=5)
    assert (events[-1].reason, events[-1].step) == ("done", 18)


@pytest.mark.parametrize("higher", [True, False])
def test_of_equal_scores_the_likelier_is_better(tmp_path: Path, higher: bool) -> None:
    """BLEU is 0 for the first validations of every small training: it learns all the same."""
    task = Scored(scores=(0.0,) * 6, nlls=(5.0, 4.0, 4.0, 3.0, 3.5, 3.2), higher=higher)
    kind = {"schedule": "plateau", "warmup": 0, "plateau_patience": 2, "plateau_factor": 0.1}
    events = run(tmp_path, task, steps=100, validate_every=3, patience=2, **kind)
    assert [event.improved for event in of(Validated, events)] == [True, True, False, True, False, False]
    assert [event.is_tie for event in of(Validated, events)] == [False, True, False, True, False, False]
    assert (events[-1].reason, events[-1].step) == ("patience", 18)
    assert checkpoint.read(tmp_path / "best.safetensors").facts["step"] == 12
    progress = checkpoint.read(tmp_path / "last.safetensors").facts["progress"]
    assert (progress["best"], progress["plateau"]["factor"]) == ([0.0, 3.0], pytest.approx(0.1))


def test_an_end_out_of_turn_does_not_cost_patience(tmp_path: Path) -> None:
    task = Scored(scores=(3.0, 2.0, 1.0, 1.0))
    run(tmp_path, task, steps=4, validate_every=3)
    assert checkpoint.read(tmp_path / "last.safetensors").facts["progress"]["bad"] == 0


def test_a_plateau_lowers_the_rate(tmp_path: Path) -> None:
    task = Scored(scores=(1.0, 0.5, 0.5, 2.0, 0.5, 0.5))
    kind = {"schedule": "plateau", "plateau_factor": 0.1, "plateau_patience": 2}
    events = run(tmp_path, task, steps=12, validate_every=2, log_every=1, warmup=0, lr=1.0e-3, **kind)
    rates = [event.lr for event in of(StepLogged, events)]
    assert rates == pytest.approx([1e-3] * 6 + [1e-4] * 6)
    assert checkpoint.read(tmp_path / "last.safetensors").facts["progress"]["plateau"]["factor"] == pytest.approx(0.01)


def test_checkpoints_are_averaged(tmp_path: Path) -> None:
    task = Scored(scores=(1.0, 1.0, 1.0, 2.0, 5.0))
    seen = {}
    for event in fit.fit(task, tmp_path, TrainingConfig(steps=8, validate_every=2, average=3, threads=1)):
        if isinstance(event, Saved) and event.path.name == "last.safetensors":
            seen[event.step] = weights(event.path)
        last = event
    assert isinstance(last, Stopped)
    got = weights(tmp_path / "average.safetensors")
    for name in got.keys() - {"calls"}:
        want = torch.stack([seen[step][name].double() for step in (4, 6, 8)]).mean(0).float()
        torch.testing.assert_close(got[name], want, rtol=1e-6, atol=1e-8)
    assert sorted(path.name for path in (tmp_path / "validated").iterdir()) == [
        *("4.safetensors", "6.safetensors", "8.safetensors")
    ]
    best = checkpoint.read(tmp_path / "best.safetensors")
    assert best.facts["averaged"] == [4, 6, 8]
    assert best.facts["score"] == {"bleu": 5.0}
    assert all(torch.equal(t, got[name]) for name, t in best.under("model.").items())
    assert [line["improved"] for line in metrics(tmp_path) if line["kind"] == "average"] == [True]


def test_a_worse_average_is_not_the_best(tmp_path: Path) -> None:
    events = run(tmp_path, Scored(scores=(1.0, 2.0, 0.5)), steps=4, validate_every=2, average=2)
    assert [(event.of, event.improved) for event in of(Validated, events)] == [
        *(("step", True), ("step", True), ("average", False))
    ]
    assert checkpoint.read(tmp_path / "best.safetensors").facts["step"] == 4
    assert (tmp_path / "average.safetensors").exists()


def test_a_better_average_stays_the_best_when_the_run_goes_on(tmp_path: Path) -> None:
    task = Scored(scores=(1.0, 5.0))
    run(tmp_path, task, steps=2, validate_every=2, average=2)
    more = run(tmp_path, task, resume=True, steps=3, validate_every=2, average=2)
    # the run goes on, improves on 1.0 by nothing, and 5.0 of the average is not improved upon
    assert [event.improved for event in of(Validated, more)] == [False, False]
    assert checkpoint.read(tmp_path / "best.safetensors").facts["score"] == {"bleu": 5.0}


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("value", "than", "higher", "want"),
    [
        *((1.0, None, True, True), (NAN, None, True, True), (1.0, NAN, True, True)),
        *((NAN, NAN, True, False), (NAN, 1.0, False, False)),
        *((2.0, 1.0, True, True), (2.0, 1.0, False, False), (1.0, 1.0, True, False), (1.0, 2.0, False, True)),
    ],
)
@pytest.mark.parametrize("nll", [2.0, INF, NAN])
def test_what_is_better(value: float, than: float | None, higher: bool, want: bool, nll: float) -> None:
    assert is_better((value, nll), None if than is None else (than, nll), higher) is want


@pytest.mark.parametrize(
    ("nll", "than", "want"),
    [
        (2.0, 3.0, True),
        (3.0, 2.0, False),
        (2.0, INF, True),
        (INF, 2.0, False),
        (NAN, 2.0, False),
        (2.0, NAN, True),
        (NAN, NAN, False),
    ],
)
@pytest.mark.parametrize("higher", [True, False])
def test_what_is_better_among_equals(nll: float, than: float, want: bool, higher: bool) -> None:
    assert is_better((1.0, nll), (1.0, than), higher) is want
