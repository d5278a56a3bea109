"""Packing is that of torch, and its way back brings everything home."""

import pytest
import torch
from hypothesis import given, strategies as st
from tests.for_each import for_each
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.layers.rnn.encoder import Encoder
from regard.layers.rnn.packing import Packing


@given(lengths=st.lists(st.integers(1, 7), min_size=1, max_size=6), more=st.integers(0, 2))
def test_packed_as_by_torch(lengths: list[int], more: int) -> None:
    counts, s = torch.tensor(lengths), max(lengths) + more
    x = torch.randn(len(lengths), s, 3)
    packing, theirs = Packing.of(counts, s), pack_padded_sequence(x, counts, batch_first=True, enforce_sorted=False)
    packed = packing.pack(x)
    # of equal lengths torch may take either first
    assert packing.sizes == theirs.batch_sizes.tolist()
    torch.testing.assert_close(packing.pad(packed, s), pad_packed_sequence(theirs, batch_first=True, total_length=s)[0])
    assert torch.equal(packed[packing.first], x[:, 0])
    assert torch.equal(packed[packing.last], x[torch.arange(len(lengths)), counts - 1])


def test_gradients() -> None:
    packing = Packing.of(torch.tensor([2, 4, 1]), 5)
    x = torch.randn(3, 5, 2, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: packing.pad(packing.pack(x).square(), 5), x)


@pytest.mark.parametrize("lengths", [[3, 0], [6, 1], [-1]])
def test_lengths_that_cannot_be(lengths: list[int]) -> None:
    wrong = next(n for n in lengths if not 1 <= n <= 5)
    with pytest.raises(
        ValueError, match=rf"lengths must be 1 to 5, the steps of x, got {wrong}; leave out empty sequences"
    ):
        Packing.of(torch.tensor(lengths), 5)


INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16, torch.uint32, torch.uint64]


@for_each("dtype", INTEGERS, ids=str)
def test_lengths_of_any_integer_type(dtype: torch.dtype) -> None:
    encoder, x, lengths = Encoder(3, 2), torch.randn(4, 5, 3), torch.tensor([2, 5, 1, 5])
    want, got = encoder(x, lengths), encoder(x, lengths.to(dtype))
    torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bool], ids=str)
def test_lengths_that_are_no_whole_numbers(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=rf"lengths must be whole numbers, got {dtype}; call lengths.long\(\)"):
        Packing.of(torch.tensor([1, 1], dtype=dtype), 5)


def test_a_batch_of_nothing() -> None:
    said = "lengths must be those of one sequence or more, got none; leave out empty batches"
    with pytest.raises(ValueError, match=said):
        Encoder(3, 2)(torch.zeros(0, 5, 3), torch.zeros(0, dtype=torch.long))


@pytest.mark.parametrize("lengths", [[3], [3, 5, 1]])
def test_lengths_of_other_rows(lengths: list[int]) -> None:
    said = rf"lengths must be one per row of x, got {len(lengths)} for x \(2, 5, 3\); give 2 lengths, or"
    with pytest.raises(ValueError, match=said):
        Encoder(3, 2)(torch.zeros(2, 5, 3), torch.tensor(lengths))
