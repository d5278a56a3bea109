"""The laws of layers that are no mechanism per query: those that summarize texts, mix keys, or exchange axes."""

import copy
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard import Attended, Causal, Lengths, Need
from regard.layers import (
    AlternatingCoAttention,
    CrossCovariance,
    InducedAttention,
    InteractiveCoAttention,
    Linformer,
    MultiDimensional,
    MultiGrainedCoAttention,
    Nystrom,
    RotatoryAttention,
    SlotAttention,
    WordByWord,
)

B, Q, K, D = 3, 5, 7, 8


class Case(NamedTuple):
    """How a layer is built, and its results for q and for k with a mask of the keys."""

    build: Callable[[], nn.Module]
    attend: Callable[..., list[Attended]]
    keys: bool = True  # the last axis of the first weights counts keys
    silent: tuple[str, ...] = ()  # parameters that a softmax does not feel


def _pair(module: Any, q: Tensor, k: Tensor, mask: Any, need: Need) -> list[Attended]:
    summary = module.attend(q, k, mask=mask, need=need)
    return [summary.of_k, summary.of_q]


def _rotatory(module: Any, q: Tensor, k: Tensor, mask: Any, need: Need) -> list[Attended]:
    summary = module.attend(q, k, q, left_mask=mask, need=need)
    return [summary.left, summary.right, summary.target_by_left, summary.target_by_right]


def _one(module: Any, q: Tensor, k: Tensor, mask: Any, need: Need) -> list[Attended]:
    return [module.attend(q, k, mask=mask, need=need)]


def _induced(module: Any, q: Tensor, k: Tensor, mask: Any, need: Need) -> list[Attended]:
    return list(module.attend(q, k, mask=mask, need=need))


def _channels(module: Any, q: Tensor, k: Tensor, mask: Any, need: Need) -> list[Attended]:
    attended = module.attend(k, mask=mask, need=need)
    if mask is not None:  # hidden tokens have outputs, which are no law of the others
        rows = mask.fit((k.shape[0],), k.shape[1], k.shape[1], k.device).dense(*(2 * [torch.arange(k.shape[1])]))
        attended = attended._replace(out=attended.out.masked_fill(~rows.transpose(-1, -2), 0.0).sum(-2))
    else:
        attended = attended._replace(out=attended.out.sum(-2))
    return [attended]


CASES = {
    "alternating": Case(lambda: AlternatingCoAttention(D, D, 6), _pair),
    "interactive": Case(lambda: InteractiveCoAttention(D, D), _pair),
    "multi-grained": Case(lambda: MultiGrainedCoAttention(D), _pair),
    "rotatory": Case(lambda: RotatoryAttention(D), _rotatory),
    "word-by-word": Case(lambda: WordByWord(D, D, 6), _one),
    "multi-dimensional": Case(lambda: MultiDimensional(D, D, 6, D), _one),
    "linformer": Case(lambda: Linformer(9, 3), _one),
    "linformer-shared": Case(lambda: Linformer(9, 3, shared=True), _one),
    "nystrom": Case(lambda: Nystrom(3), _one),
    "nystrom-exact": Case(lambda: Nystrom(3, iterations=None), _one),
    "induced": Case(lambda: InducedAttention(D, 3, 2), _induced, silent=("read.key.bias", "write.key.bias")),
    "slots": Case(lambda: SlotAttention(D, D), _one, silent=("norm_slots.bias",)),
    "cross-covariance": Case(lambda: CrossCovariance(D, 2), _channels, keys=False),
}
each = for_each("name", CASES)


def built(name: str) -> nn.Module:
    torch.manual_seed(1)
    return CASES[name].build().eval()


def inputs(*lead: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(2)
    return torch.randn(*lead, Q, D), torch.randn(*lead, K, D)


def run(name: str, module: nn.Module, q: Tensor, k: Tensor, mask: Any = None) -> list[Attended]:
    return CASES[name].attend(module, q, k, mask, Need(weights=True))


def outputs(results: list[Attended]) -> list[Tensor]:
    return [result.out for result in results]


@each
def test_a_masked_key_equals_an_absent_key(name: str) -> None:
    module, (q, k) = built(name), inputs(B)
    lengths = torch.tensor([7, 4, 1])
    got = run(name, module, q, k, Lengths(lengths))
    for b, n in enumerate(lengths.tolist()):
        alone = run(name, module, q[b : b + 1], k[b : b + 1, :n])
        for one, other in zip(outputs(got), outputs(alone), strict=True):
            torch.testing.assert_close(one[b : b + 1], other, rtol=1e-4, atol=1e-5)
        if CASES[name].keys:
            assert got[0].weights is not None
            assert not got[0].weights[b, ..., n:].any()


@each
def test_what_is_masked_is_never_felt_and_nothing_gives_no_nan(name: str) -> None:
    module, (q, k) = built(name), inputs(B)
    found = []
    for hidden in (0.5, math.nan, math.inf):
        there = k.clone()
        there[1, 4:], there[2] = hidden, hidden
        mine, there = q.clone().requires_grad_(), there.requires_grad_()
        module.zero_grad()
        got = outputs(run(name, module, mine, there, Lengths(torch.tensor([7, 4, 0]))))
        torch.stack([out.square().sum() for out in got]).sum().backward()
        assert there.grad is not None
        assert not there.grad[1, 4:].any()
        assert not there.grad[2].any()
        found.append([*got, *[t.grad for t in (mine, there, *module.parameters()) if t.grad is not None]])
    for t in found[0]:
        assert t.isfinite().all()
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            torch.testing.assert_close(one, other)


@each
def test_empty_inputs_and_odd_strides(name: str) -> None:
    module, (q, k) = built(name), inputs(B)
    want = outputs(run(name, module, q, k))
    odd = torch.empty(B, D, Q).transpose(1, 2).copy_(q), torch.empty(K, B, D).transpose(0, 1).copy_(k)
    for one, other in zip(outputs(run(name, module, *odd)), want, strict=True):
        torch.testing.assert_close(one, other)
    for empty in ((q[:0], k[:0]), (q, k[:, :0])):
        for out in outputs(run(name, module, *empty)):
            assert out.isfinite().all()


@each
def test_leading_axes_are_free(name: str) -> None:
    module, (q, k) = built(name), inputs(2, 3)
    flat = outputs(run(name, module, q.flatten(0, 1), k.flatten(0, 1)))
    for one, other in zip(outputs(run(name, module, q, k)), flat, strict=True):
        torch.testing.assert_close(one.flatten(0, 1), other, rtol=1e-4, atol=1e-5)
    for one, other in zip(outputs(run(name, module, q[0, 0], k[0, 0])), flat, strict=True):
        torch.testing.assert_close(one, other[0], rtol=1e-4, atol=1e-5)


@each
def test_gradients_are_those_of_the_outputs(name: str) -> None:
    module, (q, k) = built(name).double(), (t.double() for t in inputs(2))
    names, values = zip(*module.named_parameters(), strict=True) if list(module.parameters()) else ((), ())
    mask = Lengths(torch.tensor([7, 4]))

    def call(q: Tensor, k: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        with torch.nn.utils.stateless._reparametrize_module(module, dict(zip(names, given, strict=True))):
            return tuple(outputs(run(name, module, q, k, mask)))

    leaves = [t.detach().clone().requires_grad_() for t in (q, k, *values)]
    assert torch.autograd.gradcheck(call, leaves, fast_mode=True, atol=1e-4)


@for_each("name", [name for name in CASES if not name.startswith("nystrom")])
def test_every_parameter_receives_a_gradient(name: str) -> None:
    module, (q, k) = built(name), inputs(B)
    results = outputs(run(name, module, q, k))
    torch.stack([(out * torch.randn_like(out)).sum() for out in results]).sum().backward()
    for key, parameter in module.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().max() > 1e-7 or key in CASES[name].silent, key


@each
def test_copies_and_types_round_trip(name: str) -> None:
    module, (q, k) = built(name), inputs(B)
    want = outputs(run(name, module, q, k))
    fresh = CASES[name].build().eval()
    fresh.load_state_dict(module.state_dict())
    for other in (copy.deepcopy(module), fresh):
        for one, same in zip(outputs(run(name, other, q, k)), want, strict=True):
            assert torch.equal(one, same)
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        typed = outputs(run(name, copy.deepcopy(module).to(dtype), q.to(dtype), k.to(dtype)))
        for one, other in zip(typed, want, strict=True):
            assert one.dtype == dtype
            torch.testing.assert_close(one.to(other.dtype), other, rtol=0.1, atol=0.2)


@each
def test_a_recording_changes_nothing(name: str) -> None:
    module, (q, k) = built(name), inputs(B)
    with torch.no_grad():
        want = outputs(run(name, module, q, k))
        with regard.record(module) as recording:
            got = outputs(run(name, module, q, k))
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other)
    assert len(recording) > 0


MIXED = [name for name in CASES if name.startswith(("linformer", "nystrom", "induced", "slots", "cross"))]


@for_each("name", MIXED)
def test_a_mask_per_query_is_refused(name: str) -> None:
    module, (_, k) = built(name), inputs(B)
    with pytest.raises(ValueError, match="^mask must hide the same keys from all queries for .*, got Causal"):
        module(*[k] * (1 if name == "cross-covariance" else 2), mask=Causal())


def test_transformed_calls_take_masks_of_keys_and_refuse_those_per_query() -> None:
    """Where values cannot be read, nothing is taken on trust."""
    layer, (_, k) = built("nystrom"), inputs(B)
    mask = Lengths(torch.tensor([7, 4, 1]))
    _, slope = torch.func.jvp(lambda x: layer(x, x, mask=mask), (k,), (torch.ones_like(k),))
    assert slope.isfinite().all()
    with pytest.raises(ValueError, match="^mask must hide the same keys"):
        torch.func.jvp(lambda x: layer(x, x, mask=torch.ones(K, K, dtype=torch.bool)), (k,), (torch.ones_like(k),))


def test_arguments_that_do_not_fit_are_refused() -> None:
    _, k = inputs(B)
    cache = regard.Attention().project_kv(k)
    with pytest.raises(
        ValueError,
        match=r"k must have at most 6 positions for Linformer\(6, 2\), got .*; shorten k or build Linformer\(7",
    ):
        Linformer(6, 2)(k)
    with pytest.raises(TypeError, match="k must be a tensor for Nystrom, which mixes all keys, got KVCache.*; pass it"):
        Nystrom(2)(k, cache)
    with pytest.raises(
        TypeError, match="k must be a tensor for SlotAttention, which reads it in every round, got KVCache.*; pass it"
    ):
        SlotAttention(D, D)(k, cache)
    with pytest.raises(ValueError, match="^map is not available from MultiDimensional, .*; ask for weights"):
        MultiDimensional(D, D, 6, D).attend(k, k, need=Need(map=True))
    with pytest.raises(ValueError, match="^v must be None when k is a KVCache, got v .*; leave v out"):
        regard.layers.Hopfield()(k, cache, k)
    with pytest.raises(ValueError, match="^lse is not available from SlotAttention, .*; ask for weights"):
        SlotAttention(D, D).attend(k, k, need=Need(lse=True))
    for layer in (Nystrom(2), Linformer(9, 2)):
        with pytest.raises(ValueError, match=r"^entropy is not available from \w+, whose weights may be negative; ask"):
            layer.attend(k, k, need=Need(entropy=True))
    with pytest.raises(ValueError, match="dim must split evenly over heads: 8 over 3 leaves 2; try dim=6"):
        CrossCovariance(8, 3)
    with pytest.raises(TypeError, match="score must be a Score, got .*; write score="):
        regard.scores.Activated("tanh")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown activation 'tahn'; did you mean 'tanh'"):
        regard.scores.Activated(regard.Dot(), "tahn")


@torch.no_grad()
def test_a_slot_without_inputs_stays_as_it_is() -> None:
    module, (q, k) = built("slots"), inputs(B)
    assert torch.equal(module(q, k, mask=Lengths(torch.tensor([7, 0, 0])))[1:], q[1:])
