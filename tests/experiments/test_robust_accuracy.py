"""Attacks are chosen by the inputs of a task."""

import pytest

from regard.experiments.attackable_tasks import choose_attack
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.classify_text.options import ClassifyText


def test_the_attack_fits_the_inputs() -> None:
    assert choose_attack("runs/a", ClassifyImage.of(), None) == "pgd"
    assert choose_attack("runs/a", ClassifyText.of(), "triggers") == "triggers"
    with pytest.raises(ValueError, match="and runs/a is a run of classify-image; use attack=pgd or"):
        choose_attack("runs/a", ClassifyImage.of(), "hotflip")
