"""Packed texts: their places, and poolings as of padded states."""

import pytest
import torch

from regard.layers.lengths import inside_lengths
from regard.layers.packed_texts import POOLINGS, PackedTexts, packs
from regard.layers.text_pooling import pool

TEXTS = [[5, 6, 7], [8], [9, 5]]


def test_places() -> None:
    packed = PackedTexts.of(TEXTS)
    assert packed.tokens.tolist() == [5, 6, 7, 8, 9, 5]
    assert packed.documents.tolist() == [0, 0, 0, 1, 2, 2]
    assert packed.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert packed.to(torch.device("cpu")).lengths == (3, 1, 2)
    with pytest.raises(ValueError, match="text 1 has no tokens; give every text at least one"):
        PackedTexts.of([[1], []])


@pytest.mark.parametrize("how", POOLINGS)
def test_poolings_are_those_of_padded_states(how: str) -> None:
    packed = PackedTexts.of(TEXTS)
    states = torch.randn(6, 7, dtype=torch.float64, requires_grad=True)
    padded = torch.nn.utils.rnn.pad_sequence(list(states.split(list(packed.lengths))), batch_first=True)
    expected = pool(padded, inside_lengths(torch.tensor(packed.lengths), 3), how)
    torch.testing.assert_close(packed.pool(states, how), expected)
    assert torch.autograd.gradcheck(lambda x: packed.pool(x, how), (states,))
    with pytest.raises(ValueError, match="unknown how 'sum'; known are: mean, first, max"):
        packed.pool(states, "sum")


def test_packs_hold_every_text_once() -> None:
    lengths = [7, 2, 30, 5, 5, 1]
    found = list(packs(lengths, 10))
    assert sorted(n for pack in found for n in pack) == list(range(6))
    assert all(sum(lengths[n] for n in pack) <= 10 or len(pack) == 1 for pack in found)
    assert [lengths[n] for pack in found for n in pack] == sorted(lengths)
    assert list(packs([], 10)) == []
