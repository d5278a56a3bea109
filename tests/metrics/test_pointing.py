"""Pointing: tokens that attend to the object that they name."""

from dataclasses import dataclass

import numpy as np
import pytest

from regard.metrics.pointing import pointing


@dataclass(frozen=True)
class Box:
    name: str
    top: int
    left: int
    bottom: int
    right: int

    def holds(self, y: float, x: float) -> bool:
        return self.top <= y < self.bottom and self.left <= x < self.right


NAMES = ("two", "five", "nine")
BOXES = (Box("two", 0, 0, 8, 8), Box("two", 0, 24, 8, 32), Box("nine", 24, 24, 32, 32))
WEIGHTS = np.zeros((6, 16))
for _step, _patch in enumerate((5, 0, 5, 3, 12, 15)):
    WEIGHTS[_step, _patch] = 1


def score(tokens: list[str], rows: slice | list[int], generator: np.random.Generator | None = None) -> float:
    return pointing([tokens], [WEIGHTS[rows]], [BOXES], NAMES, (4, 4), (32, 32), generator)


def test_pointing() -> None:
    tokens = ["the", "two", "the", "▁two,", "nine", "<eos>"]
    assert score(tokens, slice(None)) == pytest.approx(200 / 3)
    assert score(tokens, slice(None), np.random.default_rng(0)) == pytest.approx(200 / 3)


def test_a_token_for_an_object_that_is_not_there_is_a_miss() -> None:
    assert score(["five"], [1]) == 0
    assert score(["nine", "nine"], [5, 5]) == 50
    assert score(["the"], [0]) == 0


def test_a_grid_that_is_no_square() -> None:
    """Patch 5 of 2 × 5 is the first of the second row: its center is y = 9, x = 1.5 of 12 × 15."""
    weights = np.eye(10)[[5]]
    for box, expected in ((Box("two", 9, 1, 10, 2), 100.0), (Box("two", 8, 1, 9, 2), 0.0)):
        assert pointing([["two"]], [weights], [[box]], NAMES, (2, 5), (12, 15)) == expected


def test_a_sampled_patch_is_sampled_by_the_weights() -> None:
    box = Box("two", 0, 0, 1, 1)
    many = pointing([["two"]] * 1000, [[[0.3, 0.7]]] * 1000, [[box]] * 1000, NAMES, (1, 2), (1, 2))
    assert many == 0
    generator = np.random.default_rng(0)
    sampled = pointing([["two"]] * 1000, [[[0.6, 1.4]]] * 1000, [[box]] * 1000, NAMES, (1, 2), (1, 2), generator)
    assert sampled == pytest.approx(30, abs=4)
