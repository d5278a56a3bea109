"""A call can be cut: into samples and into parts, and each is again a call."""

import itertools
from typing import Any

import torch
from tests.attn.backends.cases import Case, close, resolved
from tests.for_each import for_each

import regard
from regard.attn.call import AttentionCall, equation
from regard.attn.call_slicing import select

B, H, Q, K, D, V = 2, 3, 5, 7, 4, 6
FEWER = ((B, H), (1, H), (B, 1), (H,), (1,), ())


def a_call(*leads: tuple[int, ...], **terms: Any) -> AttentionCall:
    shapes = [(*lead, n, w) for lead, n, w in zip(leads, (Q, K, K), (D, D, V), strict=True)]
    tensors = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    return resolved(*tensors, **terms)


def whole(call: AttentionCall) -> torch.Tensor:
    out = equation(call).out
    return out.expand(*call.batch, *out.shape[-2:])


LEADS = [leads for leads in itertools.product(FEWER, repeat=3) if (B, H) in leads][::2]


@for_each("leads", LEADS, ids=str)
def test_a_sample_of_tensors_with_fewer_leading_axes(leads: tuple[tuple[int, ...], ...]) -> None:
    for mask in (
        None,
        regard.Lengths(torch.tensor([3, 6])),
        regard.BooleanMask(torch.rand(H, Q, K).unsqueeze(0) < 0.6),
    ):
        call = a_call(*leads, mask=mask)
        for n in range(B):
            one = select(call, 0, [n])
            assert one.batch == (1, H)
            close(whole(one), whole(call)[n : n + 1], f"sample {n}")
            part = one.slice(slice(1, 4), slice(None))
            close(whole(part), whole(call)[n : n + 1, :, 1:4], f"rows of sample {n}")


@for_each("shape", [(Q, K), (H, Q, K), (B, H, Q, K), (B, 1, 1, K), (1, H, Q, 1), (H, 1, K)], ids=str)
def test_a_sample_of_numbers_added(shape: tuple[int, ...]) -> None:
    call = a_call((B, H), (B, H), (B, H), bias=torch.randn(shape, dtype=torch.float64))
    for n in range(B):
        close(whole(select(call, 0, [n])), whole(call)[n : n + 1], f"sample {n}")
    assert call.slice(slice(0, 2), torch.tensor([1, 5])).bias is not call.bias


def test_a_sample_has_its_own_positions() -> None:
    j = torch.stack([torch.arange(K), torch.arange(K) + 3])
    call = a_call((B, H), (B, H), (B, H), bias=regard.ALiBi(H), mask=regard.Causal(), positions=(j[:, -Q:] - 1, j))
    for n in range(B):
        close(whole(select(call, 0, [n])), whole(call)[n : n + 1], f"sample {n}")


def test_a_part_of_a_part() -> None:
    terms = Case("dot", "alibi", "window").terms()
    call = a_call((B, H), (B, H), (B, H), **{**terms, "normalize": regard.Sigmoid()})
    rows, columns = torch.tensor([0, 2, 3]), torch.tensor([1, 2, 4, 6])
    once = call.slice(rows, columns)
    twice = call.slice(slice(None), torch.tensor([1, 2, 3, 4, 6])).slice(rows, torch.tensor([0, 1, 3, 4]))
    assert torch.equal(whole(once), whole(twice))


def test_the_length_of_each_sample_survives_the_cut() -> None:
    gaussian = Case("dot", "gaussian").terms()["bias"]
    mask = regard.Causal() & regard.Lengths(torch.tensor([3, 9]))
    call = a_call((B, H), (B, H), (B, H), mask=mask, bias=gaussian)
    assert call.total.flatten().tolist() == [3, K]
    assert call.slice(slice(0, 2), slice(0, 4)).total.flatten().tolist() == [3, K]
    assert select(call, 0, [1]).total.flatten().tolist() == [K]
    assert a_call((B, H), (B, H), (B, H), mask=mask).total == K
