"""The continuations of a beam: the native form selects the same as the one in torch."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from regard.kernels import native_library
from regard.kernels.continuations import continuations

here = pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
EOS = 2


def problem(r: int, n: int, k: int, values: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Candidates with many equals and impossible ones; the first of each hypothesis is the most probable."""
    log_p = -torch.randint(0, values, (r, n, k)).to(dtype) / 7
    log_p = log_p.masked_fill(torch.rand(r, n, k) < 0.2, -torch.inf).sort(-1, descending=True).values
    log_prob = (-torch.randint(0, values, (r, n)).to(dtype) / 3).masked_fill(torch.rand(r, n) < 0.2, -torch.inf)
    end = -torch.randint(0, values, (r, n)).to(dtype)
    return log_p, torch.randint(0, 2 * k + 2, (r, n, k)), end, log_prob


@here
@settings(max_examples=100)
@given(
    r=st.sampled_from([1, 2, 7]),
    n=st.integers(1, 5),
    k=st.integers(1, 7),
    others=st.sampled_from([0, 1, 2, 4, 40]),
    greedy_first=st.booleans(),
    values=st.sampled_from([2, 9, 1000]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 10_000),
)
def test_native_equals_torch(
    r: int, n: int, k: int, others: int, greedy_first: bool, values: int, dtype: torch.dtype, seed: int
) -> None:
    torch.manual_seed(seed)
    candidates = problem(r, n, k, values, dtype)
    one, other = (continuations(*candidates, EOS, others, greedy_first, native=native) for native in (True, False))
    for name in ("ends", "going", "slot", "token"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert one[-2:] == other[-2:]
    torch.testing.assert_close(one.margin, other.margin)


def test_the_greedy_continuation_comes_first_and_equals_keep_their_order() -> None:
    log_p = torch.tensor([[[-1.0, -1.5, -4.0], [-0.5, -1.0, -2.0]]])
    tokens = torch.tensor([[[5, 3, 4], [3, 5, EOS]]])
    found = continuations(log_p, tokens, torch.tensor([[-9.0, -2.0]]), torch.tensor([[-1.0, -1.5]]), EOS, 2, True)
    assert found.token.tolist() == [[5, 3, 3]]
    assert found.slot.tolist() == [[0, 1, 0]]
    assert found.going.tolist() == [[-2.0, -2.0, -2.5]]
    assert not found.has_ends
    assert not found.has_impossible
    # the second and the third of the others are equal: another order would be another beam
    assert found.margin.tolist() == [0.0]


def test_native_is_refused_for_mixed_dtypes() -> None:
    parts = problem(1, 2, 3, 5, torch.float32)
    mixed = (*parts[:3], parts[3].double())
    assert continuations(*mixed, EOS, 1, True).going.dtype == torch.float64
    with pytest.raises(RuntimeError, match="native=True is not possible"):
        continuations(*mixed, EOS, 1, True, native=True)
