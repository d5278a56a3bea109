"""Adversarial training: attacked batches, exact resumes, robust scores, and the warning on catastrophic overfitting."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.attacks import FGSM, PGD, UniformStart
from regard.tasks.classify_image import adversary
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.shared.image_data import normalized
from regard.training.checkpoint import read as stored
from regard.training.config import TrainingConfig
from regard.training.events import Validated, Warned
from regard.training.fit import fit

SMALL: dict[str, Any] = {"width": 4, "depths": (1,), "batch": 100, "shift": 0}
TRAINING: dict[str, Any] = {"warmup": 0, "schedule": "constant", "threads": 1}


class Pixels(nn.Module):
    """The model behind its normalisation."""

    def __init__(self, model: nn.Module, stats: Any) -> None:
        super().__init__()
        self.model, self.stats = model, stats

    def forward(self, x: Tensor) -> Tensor:
        return self.model(normalized(x, self.stats))


@pytest.mark.parametrize("name", ["pgd", "fgsm"])
def test_the_loss_is_that_of_attacked_images(name: str, tmp_path: Path) -> None:
    problem = ClassifyImage.of(**SMALL, adversary=name, eps=0.2, dropout=0.0).prepare(tmp_path)
    torch.manual_seed(0)
    model = problem.build_model().train()
    batch = problem.load_batch(problem.plan_epoch(0)[0], 0, 1)
    statistics = model.stem[1].running_mean.clone()
    torch.manual_seed(5)
    seed = int(torch.randint(2**31, ()))
    pixels = (batch.x * problem.stats.spread + problem.stats.mean).clamp(0, 1)
    attack = PGD(0.2, 5, start=UniformStart()) if name == "pgd" else FGSM(0.2, 0.25, UniformStart())
    attacked = regard.attack(Pixels(model, problem.stats), pixels, batch.labels, attack, seed).inputs
    assert torch.equal(model.stem[1].running_mean, statistics)
    torch.manual_seed(5)
    loss = problem.loss(model, batch)
    assert model.training
    assert not torch.equal(model.stem[1].running_mean, statistics)
    want = F.cross_entropy(model(normalized(attacked, problem.stats)), batch.labels, reduction="sum")
    torch.testing.assert_close(loss.total, want)
    clean = ClassifyImage.of(**SMALL, dropout=0.0).prepare(tmp_path).loss(model, batch)
    assert loss.total > clean.total


def test_a_resumed_run_is_an_uninterrupted_one(tmp_path: Path) -> None:
    task = ClassifyImage.of(**SMALL, adversary="pgd", attack_steps=2)
    for folder, steps, resume in (("a", 3, False), ("b", 1, False), ("b", 3, True)):
        events = list(fit(task, tmp_path / folder, TrainingConfig(steps=steps, **TRAINING), resume=resume))
    a, b = (stored(tmp_path / name / "last.safetensors") for name in "ab")
    assert a.tensors.keys() == b.tensors.keys()
    assert all(torch.equal(value, b.tensors[name]) for name, value in a.tensors.items())
    (validated,) = (event for event in events if isinstance(event, Validated))
    assert validated.score.main == "robust_nll"
    assert not validated.score.higher_is_better
    assert validated.score.values["robust_accuracy"] <= validated.score.values["accuracy"]
    assert validated.score.values["robust_nll"] > validated.score.values["nll"]


def test_catastrophic_overfitting_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step leaves 90 %, several steps 10 %."""

    def attacked(*args: Any) -> Any:
        attack = args[4]
        return SimpleNamespace(accuracy=90.0 if isinstance(attack, FGSM) else 10.0, loss=torch.ones(3))

    monkeypatch.setattr(adversary, "attack_logits", attacked)
    events = list(fit(ClassifyImage.of(**SMALL, adversary="fgsm"), tmp_path / "a", TrainingConfig(steps=1, **TRAINING)))
    assert [event.text for event in events if isinstance(event, Warned)] == [
        "catastrophic overfitting: one step of fgsm leaves an accuracy of 90.0 %, 10 steps of PGD leave 10.0 %; use "
        "the best weights, a smaller --eps, or --adversary pgd"
    ]
    # an adversary of several steps does not overfit in this way
    events = list(fit(ClassifyImage.of(**SMALL, adversary="pgd"), tmp_path / "b", TrainingConfig(steps=1, **TRAINING)))
    assert not [event for event in events if isinstance(event, Warned)]


def test_open_options_are_filled() -> None:
    assert (ClassifyImage.of().eps, ClassifyImage.of().attack_steps, ClassifyImage.of().metric) == (None, None, "nll")
    pgd, fgsm = (ClassifyImage.of(adversary=name) for name in ("pgd", "fgsm"))
    assert (pgd.eps, pgd.attack_steps, pgd.metric) == (0.1, 5, "robust_nll")
    assert (fgsm.eps, fgsm.attack_steps) == (0.1, None)
    assert ClassifyImage.from_json(pgd.to_json()) == pgd


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"eps": 0.1}, "eps=0.1 belongs to an adversary; give adversary=pgd as well"),
        (
            {"adversary": "pgd", "eps": 8},
            "--eps must be more than 0 and at most 1, as pixels are from 0 to 1, got 8; 8 of 255 grey levels are "
            "--eps 0.0314",
        ),
        (
            {"adversary": "fgsm", "attack_steps": 3},
            "attack_steps=3 belongs to adversary=pgd; give it, or leave this out",
        ),
        (
            {"adversary": "pgd", "attack_steps": 0},
            "attack_steps must be 1 or more, got 0; leave it out for a value that suits",
        ),
        ({"adversary": "pdg"}, "unknown adversary 'pdg'; did you mean 'pgd'? known are: pgd, fgsm"),
    ],
)
def test_refusals(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        ClassifyImage.of(**options)
