"""Hostile files: all bombs and some damages of `python -m benchmarks.robustness.hostile`, without a clock."""

from benchmarks.robustness import hostile
from benchmarks.robustness.bombs import BOMBS


def test_every_hostile_file_is_one_sentence() -> None:
    assert hostile.failures(len(BOMBS) + 2 * len(hostile.KINDS), seed=1) == []
