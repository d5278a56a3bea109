"""Tasks that break, and losses that are no numbers: the run stops with a sentence and harms nothing."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.training.toy import Batch, Toy, ToyProblem, run, weights
from torch import nn

from regard.training import checkpoint
from regard.training.fit import Diverged
from regard.training.protocol import Loss


@dataclasses.dataclass(frozen=True)
class Broken(Toy):
    """Something goes wrong in this step."""

    kind: str = "loss"
    at: int = 8

    def prepare(self, folder: Path, new: bool = True) -> "BrokenProblem":
        (folder / "tokens.json").write_text("{}")
        if self.kind == "prepare":
            raise ValueError("no data")
        return BrokenProblem(self)


class BrokenProblem(ToyProblem):
    calls = 0

    def plan_epoch(self, epoch: int) -> Sequence[list[int]]:
        return [] if self.task.kind == "plan" else super().plan_epoch(epoch)

    def num_terms(self, batch: Batch) -> int:
        kind = self.task.kind
        return 0 if kind == "nothing" else len(batch.y) + (kind == "count")

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        self.calls += 1
        loss = super().loss(model, batch)
        if self.calls != self.task.at:
            return loss
        kind = self.task.kind
        if kind == "sums":
            return Loss(loss.total, loss.count, {"wrong": 1.0})
        if kind == "gradient":
            # the square root's slope at zero is infinite, its value is not
            return Loss(loss.total + (loss.total * 0).sqrt(), loss.count, loss.sums)
        return Loss(loss.total * math.nan, loss.count, loss.sums)


@pytest.mark.parametrize(("kind", "cause"), [("loss", "loss nan"), ("gradient", "loss .* and gradient norm nan")])
def test_a_loss_that_is_no_number_stops_the_run(tmp_path: Path, kind: str, cause: str) -> None:
    task = Broken(kind=kind)
    planned = ToyProblem(task).plan_epoch(0)[7]
    message = ", ".join(map(str, planned))
    with pytest.raises(
        Diverged,
        match=rf"step 8 in epoch 0 has {cause}.*, on batch \[{message}\]; the checkpoint of step 5 is "
        "unchanged: fix the data and train again, or resume with a smaller lr than 0.001 or a smaller clip than 1",
    ):
        run(tmp_path, task, steps=20, save_every=5)
    assert checkpoint.read(tmp_path / "last.safetensors").facts["step"] == 5
    assert all(t.isfinite().all() for t in weights(tmp_path / "last.safetensors").values())
    with pytest.raises(Diverged, match="or with a clip such as clip=1.0$"):
        run(tmp_path, dataclasses.replace(task), resume=True, steps=20, clip=None, lr=1e30)


def test_a_run_without_a_checkpoint_says_so(tmp_path: Path) -> None:
    message = (
        "; there is no checkpoint yet: fix the data and train again, or start over with a smaller lr than 0.001 or a"
    )
    with pytest.raises(Diverged, match=message):
        run(tmp_path, Broken(), steps=20, save_every=9)
    assert not (tmp_path / "last.safetensors").exists()


def test_many_batches_are_named_briefly(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"on batch \[.{250,310}…; the"):
        run(tmp_path, Broken(rows=61, at=2), steps=20, accumulate=5)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("plan", "epoch 0 has no batches; give the task training data"),
        ("count", "the loss sums 7 terms, but problem.num_terms says 8; make them agree"),
        ("nothing", "batch .* of epoch 0 has no loss terms; leave it out of the plan"),
        ("sums", r"problem.loss sums \['wrong'\] now, \['right'\] at first; report the same sums in every batch"),
    ],
)
def test_a_task_that_breaks_its_word_is_told(tmp_path: Path, kind: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(tmp_path, Broken(kind=kind), steps=20)


def test_a_run_that_never_began_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no data"):
        run(tmp_path / "new", Broken(kind="prepare"), steps=20)
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "mine.txt").write_text("keep")
    with pytest.raises(ValueError, match="no data"):
        run(tmp_path / "old", Broken(kind="prepare"), steps=20)
    assert sorted(path.name for path in (tmp_path / "old").iterdir()) == ["mine.txt", "tokens.json"]
