"""What runs on heads runs on heads with parts: recordings, swaps, 8-bit weights, states and programs of torch."""

import copy
from collections.abc import Callable

import pytest
import torch
from tests.for_each import for_each
from torch import nn

import regard
from regard import Attention, Learnable, MultiHead, Need
from regard.export.plain_attention import attention_reason
from regard.layers import Differential, L2QKNorm, LayerQKNorm, OutputGate, RMSQKNorm, WholeRMSQKNorm
from regard.normalizers import TalkingWeights, WithNullSlot
from regard.scores import SoftCap, TalkingScores

DIM, HEADS, D, T = 64, 4, 16, 5
PARTS: dict[str, Callable[[], dict[str, object]]] = {
    "rms": lambda: {"qk_norm": RMSQKNorm(D)},
    "whole rms": lambda: {"qk_norm": WholeRMSQKNorm(DIM)},
    "layer norm": lambda: {"qk_norm": LayerQKNorm(D)},
    "l2": lambda: {"qk_norm": L2QKNorm()},
    "gate": lambda: {"gate": OutputGate(DIM, HEADS)},
    "channel gate": lambda: {"gate": OutputGate(DIM, HEADS, D)},
    "difference": lambda: {"difference": Differential(D)},
    "sink": lambda: {"attention": Attention(normalize=WithNullSlot(score=Learnable(0.0, heads=HEADS)))},
    "cap": lambda: {"attention": Attention(SoftCap(2.0))},
    "talking": lambda: {"attention": Attention(TalkingScores(HEADS), normalize=TalkingWeights(HEADS))},
}


def layer(name: str) -> MultiHead:
    torch.manual_seed(0)
    return MultiHead(DIM, HEADS, **PARTS[name]()).eval()  # type: ignore[arg-type]


@for_each("name", PARTS)
def test_a_recording_shows_the_weights_and_changes_nothing(name: str) -> None:
    heads, x = layer(name), torch.randn(2, T, DIM)
    want = heads(x, mask=regard.Causal())
    with regard.record(heads) as recording:
        got = heads(x, mask=regard.Causal())
        step, past = heads.step(x[:, :1])
    assert torch.equal(got, want)
    torch.testing.assert_close(step, want[:, :1], rtol=1e-4, atol=1e-5)
    weights = heads.attend(x, mask=regard.Causal(), need=Need(weights=True)).weights
    torch.testing.assert_close(recording[0].weights[:, :], weights)
    assert len(recording) == 2
    assert len(past) == 1


@for_each("name", PARTS)
def test_terms_are_swapped_beside_the_parts(name: str) -> None:
    heads, x = layer(name), torch.randn(2, T, DIM)
    other = copy.deepcopy(heads)
    other.attention.normalize = regard.Sparsemax()
    plain = heads(x)
    with regard.swap(heads, normalize=regard.Sparsemax()):
        torch.testing.assert_close(heads(x), other(x))
        with torch.no_grad():
            torch.testing.assert_close(heads.step(x[:, :1].contiguous())[0], other.step(x[:, :1].contiguous())[0])
    torch.testing.assert_close(heads(x), plain)


@for_each("name", PARTS)
def test_weights_of_8_bits_keep_the_parts(name: str) -> None:
    heads, x = layer(name), torch.randn(2, T, DIM)
    want = heads(x)
    regard.quantize(heads)
    torch.testing.assert_close(heads(x), want, rtol=0.1, atol=0.1)
    past = None
    with torch.no_grad():
        for t in range(T):
            out, past = heads.step(x[:, t : t + 1].contiguous(), past)
    torch.testing.assert_close(out[:, 0], heads(x, mask=regard.Causal())[:, -1], rtol=0.05, atol=0.05)


@for_each("name", PARTS)
def test_formats_of_other_libraries_refuse_them(name: str) -> None:
    heads = layer(name)
    reason = attention_reason(nn.Sequential(heads))
    assert reason is not None
    assert type(heads.extra_parts[0] if heads.extra_parts else heads.attention).__name__ in reason
    if name != "sink":
        with pytest.raises(ValueError, match="nn.MultiheadAttention has no place for"):
            heads.to_torch()


@for_each("name", PARTS)
def test_a_program_of_torch_holds_them(name: str) -> None:
    heads, x = layer(name), torch.randn(2, T, DIM)
    mask = torch.ones(T, T).tril().bool()
    with torch.no_grad():
        program = torch.export.export(heads, (x,), {"mask": mask}, strict=False)
        torch.testing.assert_close(program.module()(x, mask=mask), heads(x, mask=mask), rtol=1e-4, atol=1e-5)


@for_each("name", PARTS)
def test_a_state_round_trips(name: str) -> None:
    heads, x = layer(name), torch.randn(2, T, DIM)
    fresh = MultiHead(DIM, HEADS, **PARTS[name]()).eval()  # type: ignore[arg-type]
    fresh.load_state_dict(heads.state_dict())
    assert torch.equal(fresh(x), heads(x))
