"""The baselines against their formulas over the whole vocabulary."""

from pathlib import Path

import numpy as np
import pytest

from regard.data.text.special_tokens import SPECIAL
from regard.tasks.masked_lm.baseline import UNSEEN, NeighbourCounts

STREAM = np.random.default_rng(0).integers(2, 13, 300).astype(np.int32)


def test_guesses_are_those_of_the_formulas() -> None:
    counts = NeighbourCounts.of(STREAM, 13)
    before, behind = (each.ravel() for each in np.meshgrid([UNSEEN, *range(2, 13)], [UNSEEN, *range(2, 13)]))
    guesses = counts.guess(before, behind)
    pairs = np.zeros((13, 13))
    np.add.at(pairs, (STREAM[:-1], STREAM[1:]), 1)
    p = np.bincount(STREAM, minlength=13)[SPECIAL:].astype(float)
    p /= p.sum()

    def conditional(seen: np.ndarray) -> np.ndarray:
        return (seen[SPECIAL:] + 10 * p) / (seen.sum() + 10)

    for n, (left, right) in enumerate(zip(before, behind, strict=True)):
        after = p if left == UNSEEN else conditional(pairs[left])
        ahead = p if right == UNSEEN else conditional(pairs[:, right])
        expected = {"unigram": p, "bigram": after, "two-sided bigram": after * ahead / p}
        for name, scores in expected.items():
            assert scores[guesses[name][n] - SPECIAL] == pytest.approx(scores.max()), name


def test_counts_come_back_from_a_file(tmp_path: Path) -> None:
    counts = NeighbourCounts.of(STREAM, 13)
    counts.write(tmp_path)
    again = NeighbourCounts.read(tmp_path)
    for name in ("tokens", "pairs", "counts"):
        assert (getattr(counts, name) == getattr(again, name)).all()
    with pytest.raises(FileNotFoundError, match=r"holds no baseline\.safetensors; name the folder"):
        NeighbourCounts.read(tmp_path / "other")
