"""Poolings: padding changes nothing, a text without tokens is zeros, and an unknown name is refused."""

import pytest
import torch

from regard.layers.lengths import inside_lengths
from regard.layers.text_pooling import POOLINGS, pool


@pytest.mark.parametrize("how", POOLINGS)
def test_padding_is_absent(how: str) -> None:
    states = torch.randn(3, 5, 7)
    lengths = torch.tensor([5, 2, 0])
    pooled = pool(states, inside_lengths(lengths, 5), how)
    torch.testing.assert_close(pooled[1:2], pool(states[1:2, :2], inside_lengths(lengths[1:2], 2), how))
    assert not pooled[2].any()
    expected = {"mean": states[0].mean(0), "first": states[0, 0], "max": states[0].amax(0)}[how]
    torch.testing.assert_close(pooled[0], expected)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown how 'sum'; known are: mean, first, max"):
        pool(torch.zeros(1, 1, 1), torch.ones(1, 1, dtype=torch.bool), "sum")
