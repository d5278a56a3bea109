"""Hostile files: a seeded part of the trials of `python -m benchmarks.robustness.hostile`, without a clock."""

from benchmarks.robustness import hostile


def test_every_hostile_file_is_one_sentence() -> None:
    assert hostile.failures(48, seed=1) == []
