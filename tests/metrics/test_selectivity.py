"""Selectivity against loops, its bounds, and its errors."""

import pytest
import torch

from regard.metrics.selectivity import selectivity


def test_selectivity_equals_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(2, 3, 7, generator=generator, dtype=torch.float64)
    truth = torch.rand(2, 3, 7, generator=generator) < 0.4
    found = selectivity(weights, truth)
    for i in range(2):
        for j in range(3):
            on = sum(abs(float(weights[i, j, n])) for n in range(7) if truth[i, j, n])
            total = sum(abs(float(weights[i, j, n])) for n in range(7))
            assert float(found[i, j]) == pytest.approx(on / total, abs=1e-12)


def test_equal_weights_are_at_chance_and_one_hot_at_one() -> None:
    truth = torch.tensor([True, False, True, False, False])
    assert float(selectivity(torch.full((5,), 0.3), truth)) == pytest.approx(2 / 5)
    assert float(selectivity(torch.tensor([0.0, 0.0, 2.0, 0.0, 0.0]), truth)) == 1.0
    assert float(selectivity(torch.zeros(5), truth)) == 0.0
    assert selectivity(torch.ones(4, 5, dtype=torch.float16), truth).shape == (4,)


@pytest.mark.parametrize(
    ("weights", "truth", "error", "message"),
    [
        ([1.0], torch.ones(1, dtype=torch.bool), TypeError, "weights must be a Tensor"),
        (torch.ones(3), [True], TypeError, "truth must be a Tensor"),
        (torch.ones(3), torch.ones(3), TypeError, "truth must be booleans, .* got torch.float32; pass truth > 0"),
        (torch.ones(3), torch.ones(4) > 0, ValueError, "one feature count, got .*; sum the weights over positions"),
    ],
)
def test_bad_input(weights: object, truth: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        selectivity(weights, truth)  # type: ignore[arg-type]
