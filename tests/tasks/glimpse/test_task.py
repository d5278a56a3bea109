"""glimpse: scenes by seed and epoch, the three parts of the loss, scores of paths, resumed runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.for_each import for_each
from tests.tasks.classify_image.test_task import files

from regard.losses import reinforce
from regard.tasks.glimpse.options import Glimpse
from regard.tasks.glimpse.task import path_probabilities, path_scores, read_scenes
from regard.training.checkpoint import load
from regard.training.config import TrainingConfig
from regard.training.fit import fit

SMALL: dict[str, Any] = {"what": 8, "where": 8, "glimpse": 16, "hidden": 16, "glimpses": 3}


def test_scenes_are_those_of_seed_and_epoch(tmp_path: Path) -> None:
    problem = Glimpse.of(**SMALL, scene="cluttered", canvas=19, seed=3, batch=100).prepare(tmp_path)
    assert (problem.stats.height, problem.stats.width, problem.stats.mean) == (19, 19, 0.0)
    assert problem.summary.endswith("10 classes, cluttered on 19 × 19")
    plan = problem.plan_epoch(1)
    a, again, other = (problem.load_batch(one, 0, 1) for one in (plan[0], plan[0], (plan[0][0] + 1, plan[0][1])))
    assert torch.equal(a.x, again.x)
    assert a.x.shape == (100, 1, 19, 19)
    # the same digits, elsewhere
    assert torch.equal(a.labels, other.labels)
    assert not torch.equal(a.x, other.x)
    # black is 0, as what lies outside is
    assert float(a.x.min()) == 0.0
    halves = [problem.load_batch(plan[0], rank, 2) for rank in (0, 1)]
    assert torch.equal(halves[1].x, a.x[1::2])  # type: ignore[union-attr]
    assert problem.load_batch((0, plan[0][1][:1]), 1, 2) is None
    # what is judged on stays
    again_problem = Glimpse.of(**SMALL, scene="cluttered", canvas=19, seed=3).prepare(tmp_path, new=False)
    assert np.array_equal(problem.valid.pixels, again_problem.valid.pixels)
    assert np.array_equal(read_scenes(problem.config, "valid").pixels, problem.valid.pixels)
    assert not np.array_equal(read_scenes(problem.config, "test").pixels[:9], problem.valid.pixels[:9])


@pytest.mark.parametrize(
    ("options", "side", "patch", "scales"),
    [
        ({}, 8, 4, 1),
        ({"scene": "translated"}, 20, 6, 3),
        ({"scene": "cluttered", "canvas": 24, "patch": 5, "scales": 2}, 24, 5, 2),
    ],
)
def test_what_is_left_open(tmp_path: Path, options: dict[str, Any], side: int, patch: int, scales: int) -> None:
    task = Glimpse.of(**SMALL, **options)
    problem = task.prepare(tmp_path)
    model = problem.build_model()
    assert (problem.stats.height, model.retina.patch, model.retina.scales) == (side, patch, scales)
    fresh = task.load().predictor(tmp_path).model
    assert fresh.state_dict().keys() == model.state_dict().keys()
    task.load().sketch()
    # a run records them; they build the same model on the same scenes
    resolved = problem.resolved_options()
    assert resolved["model"] == {"patch": patch}
    assert resolved.get("canvas", 8) == side
    assert ("piece" in resolved) == (task.scene == "cluttered")
    recorded = task.with_options(**resolved.pop("model"), **resolved)
    again = recorded.prepare(tmp_path, new=False)
    assert recorded.model.scales == scales
    assert again.stats == problem.stats
    assert np.array_equal(again.valid.pixels, problem.valid.pixels)
    assert [p.shape for p in again.build_model().parameters()] == [p.shape for p in model.parameters()]


def test_files_decide_the_canvas(tmp_path: Path) -> None:
    problem = Glimpse.of(train=files(tmp_path / "data"), scene="cluttered", piece=2, **SMALL).prepare(tmp_path / "run")
    assert (problem.stats.height, problem.stats.width) == (16, 14)  # of 6 × 5
    assert problem.valid.pixels.shape[1:] == (16, 14, 1)
    # one number cannot record a canvas that is no square
    assert problem.resolved_options() == {"model": {"patch": 6}, "piece": 2}


def test_the_loss_is_its_three_parts(tmp_path: Path) -> None:
    problem = Glimpse.of(**SMALL, smoothing=0.1, draws=2, batch=10).prepare(tmp_path)
    model, batch = problem.build_model(), problem.load_batch(problem.plan_epoch(0)[0], 0, 1)
    torch.manual_seed(4)
    loss = problem.loss(model, batch)
    torch.manual_seed(4)
    seen = model.look(torch.cat([batch.x, batch.x]))
    labels = torch.cat([batch.labels, batch.labels])
    right = (seen.logits.argmax(-1) == labels).float()
    reward = right[:, None].expand(20, 3)
    # a mean over all of the sum over steps
    policy = -((reward - seen.baseline).detach() * seen.log_prob).sum(1).mean()
    torch.testing.assert_close(policy, 3 * reinforce(seen.log_prob, reward, seen.baseline))
    answer = F.cross_entropy(seen.logits, labels, label_smoothing=0.1)
    want = answer + 0.05 * policy + (seen.baseline - reward).square().mean()
    torch.testing.assert_close(loss.total, 10 * want)
    assert loss.count == problem.num_terms(batch) == 10
    assert float(loss.sums["accuracy"]) / 10 == pytest.approx(100 * float(right.mean()))
    torch.testing.assert_close(loss.sums["answer"], 10 * answer)


def test_paths_are_drawn_behind_the_one_at_the_means(tmp_path: Path) -> None:
    problem = Glimpse.of(**SMALL, std=0.5).prepare(tmp_path)
    model = problem.build_model().eval()
    means, one, two = path_probabilities(model, problem.valid.pixels[:9], problem.stats, 2)
    assert means.sum(-1) == pytest.approx(1.0)
    assert np.array_equal(means, next(path_probabilities(model, problem.valid.pixels[:9], problem.stats)))
    assert not np.array_equal(one, two)
    assert model.training is False
    assert set(path_scores(model, problem.valid, problem.stats)) == {"accuracy", "nll"}


def test_it_learns(tmp_path: Path) -> None:
    """A little training reads digits by glimpses."""
    task = Glimpse.of(what=32, where=16, glimpse=64, hidden=64, glimpses=4)
    training = {"lr": 5e-3, "warmup": 10, "schedule": "constant", "validate_every": 80, "threads": 1}
    list(fit(task, tmp_path / "a", TrainingConfig(steps=160, **training)))  # type: ignore[arg-type]
    model = task.load().predictor(tmp_path / "a").model
    load(model, tmp_path / "a" / "best.safetensors")
    problem = task.prepare(tmp_path / "a", new=False)
    assert path_scores(model.eval(), read_scenes(task, "test"), problem.stats)["accuracy"] > 50  # ten classes


@for_each(
    ("options", "said"),
    [
        ({"canvas": 60}, "canvas=60 belongs to a scene; give scene='translated' as well"),
        ({"clutter": 2}, "clutter=2 belongs to scene='cluttered'; give that as well"),
        ({"scene": "translated", "piece": 2}, "piece=2 belongs to scene='cluttered'; give that as well"),
        ({"scene": "translated", "shift": 1}, "shift=1 belongs to scene='plain': others are composed anew; leave it"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Glimpse.of(**options)


def test_a_canvas_that_is_too_small_is_told_as_the_task_says_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"canvas must hold images of 8 × 8, got 5; try canvas=16$"):
        Glimpse.of(scene="translated", canvas=5).prepare(tmp_path)


def test_variants() -> None:
    task = Glimpse.of(train=Path("x"), scene="translated", **SMALL)
    assert [variant.model.glimpses for variant in task.variants(["1", "4"]).values()] == [1, 4]
    with pytest.raises(ValueError, match="glimpses must be whole numbers, got 'two'; try 1,2,4"):
        task.variants(["1", "two"])
    assert (task.title, Glimpse.of().title) == ("glimpses on translated x", "glimpses on digits")
