"""Attacks are chosen by the inputs of a task."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from regard.experiments import robust_accuracy
from regard.experiments.attackable_tasks import choose_attack
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.classify_text.options import ClassifyText


def test_the_attack_fits_the_inputs() -> None:
    assert choose_attack("runs/a", ClassifyImage.of(), None) == "pgd"
    assert choose_attack("runs/a", ClassifyText.of(), "triggers") == "triggers"
    with pytest.raises(ValueError, match="and runs/a is a run of classify-image; use attack=pgd or"):
        choose_attack("runs/a", ClassifyImage.of(), "hotflip")


def test_an_attack_that_no_task_has_is_named() -> None:
    with pytest.raises(ValueError, match="unknown attack 'pgdd'; did you mean 'pgd'"):
        choose_attack("runs/a", ClassifyImage.of(), "pgdd")


def test_a_task_of_images_attacks_no_texts() -> None:
    with pytest.raises(ValueError, match="runs/a is a run of classify-image, which reads no texts; leave 'a cat' out"):
        choose_attack("runs/a", ClassifyImage.of(), None, ["a cat"])


def test_a_radius_is_for_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robust_accuracy, "load_run", lambda run: SimpleNamespace(config=ClassifyText.of()))
    with pytest.raises(ValueError, match="eps=0.1 is the change of a pixel, and runs/a reads texts; leave it out"):
        robust_accuracy.robust_accuracy(Path("runs/a"), "hotflip", 0.1)
