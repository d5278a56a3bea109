"""Hostile files: a sample of the bombs and damages of `python -m benchmarks.robustness.hostile`, without a clock."""

import pytest
from benchmarks.robustness import hostile
from benchmarks.robustness.bombs import BOMBS


def test_some_hostile_files_are_one_sentence() -> None:
    assert hostile.failures(8, seed=1, bombs=5) == []


@pytest.mark.whole
def test_every_hostile_file_is_one_sentence() -> None:
    assert hostile.failures(len(BOMBS) + 2 * len(hostile.KINDS), seed=1) == []
