"""The laws of attention over the whole catalogue: a new mechanism is tested by being listed."""

import copy
import math
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from tests.attn.mechanism_properties import (
    BY_ROWS,
    CHAINED,
    HARD,
    HEADS,
    KEY_BIAS_IS_SILENT,
    NO_VALUES,
    ONE_WIDTH,
    UNBOUNDED,
)
from tests.for_each import for_each
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import regard
from regard import MECHANISMS, Attended, Causal, KVCache, Lengths, Need, mechanism
from regard.attn import stepwise
from regard.attn.catalogue import width
from regard.layers.query_pooling import POSITIONAL

# sizes that share no factor: a swapped axis must fail
B, Q, K, D, E = 3, 5, 7, 11, 8

ALL = sorted(MECHANISMS)


def test_properties_of_known_mechanisms() -> None:
    """Properties are read from the modules: these are certain."""
    assert {"dot", "cosine", "distance", "trilinear", "linear", "memory-hop", "bidaf"} <= ONE_WIDTH
    assert not ONE_WIDTH & ({"general", "additive", "location"} | HEADS)
    assert {"key-value", "co-attention", "bidaf", "latent"} == NO_VALUES
    assert {"location-sensitive", "monotonic", "mocha", "co-attention", "bidaf"} <= CHAINED
    assert {"hard", "hard-argmax", "gumbel", "straight-through"} == HARD
    assert {"window", "alibi", "rotary"} <= POSITIONAL <= set(ALL)
    assert {"sigmoid", "unnormalized"} <= UNBOUNDED
    assert not UNBOUNDED & {"scaled-dot", "entmax", "topk", "null"}


def dims(name: str) -> tuple[int, int]:
    return (E, E) if name in ONE_WIDTH else (D, E)


def built(name: str) -> nn.Module:
    torch.manual_seed(1)
    module = mechanism(name, *dims(name))
    if name in ("monotonic", "mocha"):  # at -4 almost nothing is looked at
        nn.init.zeros_(module.get_parameter("offset"))
    return module


def inputs(name: str, *lead: int, q: int = Q, k: int = K) -> tuple[Tensor, Tensor]:
    query_dim, key_dim = dims(name)
    torch.manual_seed(2)
    return torch.randn(*lead, q, query_dim), torch.randn(*lead, k, key_dim)


def places(q: int = Q, k: int = K) -> tuple[Tensor, Tensor]:
    return torch.arange(q), torch.arange(k)


def seeded(module: nn.Module, *args: Tensor | KVCache | None, **kwargs: object) -> Attended:
    torch.manual_seed(3)
    return module.attend(*args, need=Need(weights=True), **kwargs)  # type: ignore[operator]


def agree(got: Attended, want: Attended, **tolerance: float) -> None:
    """Output and weights are the same."""
    tolerance = tolerance or {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(got.out, want.out, **tolerance)
    torch.testing.assert_close(got.weights, want.weights, **tolerance)


@for_each("name", ALL)
def test_shapes(name: str) -> None:
    module, (q, k) = built(name), inputs(name, B)
    got = seeded(module, q, k)
    torch.manual_seed(3)
    out = module(q, k)
    assert out.shape == (B, Q, width(module, *dims(name)))
    assert out.isfinite().all()
    torch.testing.assert_close(got.out, out, rtol=1e-4, atol=1e-5)
    assert got.weights.shape == ((B, 4, Q, K) if name in HEADS else (B, Q, K))
    assert name == "unnormalized" or (got.weights >= 0).all()
    if name not in UNBOUNDED:
        assert (got.weights.sum(-1) <= 1 + 1e-5).all()
    assert got.log_prob is got.lse is got.map is got.entropy is got.key_index is None
    assert module.attend(q, k).weights is None


@for_each("name", ALL)
def test_a_masked_key_equals_an_absent_key(name: str) -> None:
    module, (q, k) = built(name).eval(), inputs(name, B)
    lengths = torch.tensor([7, 4, 1])
    got = seeded(module, q, k, mask=Lengths(lengths), positions=places())
    for b, n in enumerate(lengths.tolist()):
        alone = seeded(module, q[b : b + 1], k[b : b + 1, :n], positions=places(k=n))
        agree(got._replace(out=got.out[b : b + 1], weights=got.weights[b : b + 1, ..., :n]), alone)
        assert not got.weights[b, ..., n:].any()


@for_each("name", ALL)
def test_what_may_not_be_looked_at_is_never_felt(name: str) -> None:
    module, (q, k) = built(name), inputs(name, B)
    lengths = torch.tensor([7, 4, 0])
    found = []
    for hidden in (0.5, math.nan, math.inf):
        there = k.clone()
        there[1, 4:], there[2] = hidden, hidden
        q, there = q.detach().requires_grad_(), there.requires_grad_()
        module.zero_grad()
        got = seeded(module, q, there, mask=Lengths(lengths))
        got.out.square().sum().backward()
        assert not there.grad[1, 4:].any()
        assert not there.grad[2].any()
        gradients = [t.grad for t in (q, there, *module.parameters()) if t.grad is not None]
        found.append([got.out.detach(), *gradients])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("hidden", ["all", "none are there"])
def test_nothing_to_look_at_is_nothing(name: str, hidden: str) -> None:
    module, (q, k) = built(name), inputs(name, B)
    q.requires_grad_()
    if hidden == "all":
        got = seeded(module, q, k, mask=Lengths(torch.zeros(B, dtype=torch.long)))
    else:
        got = seeded(module, q, k[:, :0])
    assert not got.weights.any()
    want = torch.zeros_like(got.out)
    if name in HEADS:  # the map behind the heads has a bias
        bias = next(p for key, p in module.named_parameters() if key in ("bias", "out.bias"))
        want = bias.expand_as(want)
    elif name == "memory-hop":  # the question stays as it was
        want = q
    elif name == "bidaf":  # and so does the context
        want = torch.cat([q, *[torch.zeros_like(q)] * 3], dim=-1)
    torch.testing.assert_close(got.out, want)
    if name not in HARD and got.out.requires_grad:
        got.out.sum().backward()
        assert q.grad is None or q.grad.isfinite().all()


@for_each("name", ALL)
def test_batched_equals_one_by_one(name: str) -> None:
    module, (q, k) = built(name).eval(), inputs(name, B)
    lengths = torch.tensor([7, 4, 2])
    got = seeded(module, q, k, mask=Lengths(lengths))
    for b in range(B):
        alone = seeded(module, q[b : b + 1], k[b : b + 1], mask=Lengths(lengths[b : b + 1]))
        agree(got._replace(out=got.out[b : b + 1], weights=got.weights[b : b + 1]), alone)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("lead", [(), (2, 3)])
def test_leading_axes_are_free(name: str, lead: tuple[int, ...]) -> None:
    module, (q, k) = built(name).eval(), inputs(name, *lead)
    got = seeded(module, q, k)
    flat = seeded(module, q.reshape(-1, *q.shape[-2:]), k.reshape(-1, *k.shape[-2:]))
    whole = flat._replace(
        out=flat.out.reshape(*lead, *flat.out.shape[-2:]), weights=flat.weights.reshape(*lead, *flat.weights.shape[1:])
    )
    agree(got, whole)


@for_each("name", sorted(set(ALL) - CHAINED - BY_ROWS))
def test_one_query_at_a_time_equals_all_at_once(name: str) -> None:
    module, (q, k) = built(name).eval(), inputs(name, B)
    i, j = places()
    whole = seeded(module, q, k, mask=Causal(), positions=(i, j))
    for n in range(Q):
        here = slice(n, n + 1)
        one = seeded(module, q[:, here], k, mask=Causal(), positions=(i[here], j))
        agree(one, whole._replace(out=whole.out[:, here], weights=whole.weights[..., here, :]))


@for_each("name", ALL)
def test_steps_are_the_whole(name: str) -> None:
    module, (q, k) = built(name).eval(), inputs(name, B)
    if name in {"co-attention", "bidaf"} | BY_ROWS:
        with pytest.raises(
            TypeError, match=r"cannot go step by step, it needs all queries together; call layer\(q, k\)"
        ):
            stepwise.project_kv(module, k)
        return
    mask = Lengths(torch.tensor([7, 4, 1]))
    whole = seeded(module, q, k, mask=mask, positions=places())
    memory = stepwise.project_kv(module, k)
    agree(seeded(module, q, memory, mask=mask, positions=places()), whole)
    state = stepwise.start(module, memory)
    for n in range(Q):
        here = slice(n, n + 1)
        got, state = stepwise.step(module, q[:, here], memory, state, mask=mask, need=Need(weights=True))
        agree(got, whole._replace(out=whole.out[:, here], weights=whole.weights[..., here, :]))
    with pytest.raises(ValueError, match=r"q must be one step, \(\*b, 1, d\), got \(3, 5, "):
        stepwise.step(module, q, memory, state)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("mode", [lambda: torch.device("meta"), FakeTensorMode], ids=["meta", "fake"])
def test_tensors_without_values_have_the_right_shapes(name: str, mode: Callable[[], AbstractContextManager]) -> None:
    module, (q, k) = built(name), inputs(name, B)
    out, weights = module(q, k), seeded(module, q, k).weights
    with mode():
        bare = mechanism(name, *dims(name))
        q, k = torch.empty(q.shape, requires_grad=True), torch.empty(k.shape)
        alone = bare(q, k)
        mask = Causal() & Lengths(torch.empty(B, dtype=torch.long))
        positions = torch.empty(Q, dtype=torch.long), torch.empty(B, K, dtype=torch.long)
        got = bare.attend(q, k, mask=mask, positions=positions, need=Need(weights=True))
        for t, want in ((got.out, out), (alone, out), (got.weights, weights)):
            assert (t.shape, t.dtype) == (want.shape, want.dtype)
            assert t.is_meta or type(t) is FakeTensor
        if alone.requires_grad:
            alone.sum().backward()
            assert q.grad is None or q.grad.shape == q.shape


@pytest.mark.parametrize("mode", [lambda: torch.device("meta"), FakeTensorMode], ids=["meta", "fake"])
def test_long_sequences_without_values_have_the_right_shapes(mode: Callable[[], AbstractContextManager]) -> None:
    """Sizes at which the backends that skip masked blocks would run."""
    with mode():
        q = torch.empty(2, 4, 2048, 16)
        for normalize in (regard.Softmax(), regard.Sparsemax(), regard.normalizers.Sum()):
            score = regard.scores.Kernel() if isinstance(normalize, regard.normalizers.Sum) else regard.Dot()
            out = regard.attention(q, q, score=score, mask=regard.Window(8, 0), normalize=normalize)
            assert out.shape == q.shape
        with pytest.raises(ValueError, match="its blocks are planned by values, and the tensors have none"):
            regard.attention(q, q, mask=Causal(), backend="blocked")


# softmax does not feel what is added to a whole row, and the greatest weight has no slope
SILENT = {
    "trilinear": {"score.query"},
    "hard-argmax": {"score.key.weight"},
    **{name: {"key.bias"} for name in KEY_BIAS_IS_SILENT},
    # what its hidden layer adds at near distances is the same for all keys
    "fire": {"key.bias", "attention.bias.inner.bias", "attention.bias.outer.bias"},
}


@for_each("name", ALL)
def test_every_parameter_receives_a_gradient(name: str) -> None:
    module, (q, k) = built(name), inputs(name, B)
    if name == "hard":
        made = module.attend(q, k, need=Need(log_prob=True)).log_prob  # type: ignore[operator]
    else:
        made = module(q, k) * torch.randn(Q, 1)
    if made.requires_grad:
        made.square().sum().backward()
    for key, parameter in module.named_parameters():
        if key in SILENT.get(name, ()):
            assert parameter.grad is None or parameter.grad.abs().max() < 1e-4
        else:
            assert parameter.grad is not None, key
            assert parameter.grad.abs().max() > 1e-6, key


@for_each("name", ALL)
def test_the_input_is_not_mutated(name: str) -> None:
    module, (q, k) = built(name), inputs(name, B)
    lengths = torch.tensor([7, 4, 0])
    before = [t.clone() for t in (q, k, lengths)]
    state = copy.deepcopy(module.state_dict())
    module(q, k, mask=Lengths(lengths))
    for one, other in zip(before, (q, k, lengths), strict=True):
        assert torch.equal(one, other)
    for key, value in module.state_dict().items():
        assert torch.equal(value, state[key]), key


@for_each("name", ALL)
def test_state_dict_deepcopy_and_dtype_round_trip(name: str) -> None:
    module, (q, k) = built(name).eval(), inputs(name, B)
    want = seeded(module, q, k)
    agree(seeded(copy.deepcopy(module), q, k), want, rtol=0.0, atol=0.0)
    fresh = mechanism(name, *dims(name)).eval()
    fresh.load_state_dict(module.state_dict())
    agree(seeded(fresh, q, k), want, rtol=0.0, atol=0.0)
    twice = seeded(copy.deepcopy(module).double(), q.double(), k.double())
    assert twice.out.dtype == torch.float64
    agree(Attended(twice.out.float(), twice.weights.float()), want)
    half = seeded(copy.deepcopy(module).bfloat16(), q.bfloat16(), k.bfloat16())
    assert half.out.dtype == torch.bfloat16
    assert half.out.isfinite().all()


# its gradient is that of another function, on purpose
@for_each("name", sorted(set(ALL) - {"straight-through"}))
def test_gradients_are_those_of_the_output(name: str) -> None:
    module = built(name).double()
    q, k = (t.double().requires_grad_() for t in inputs(name, 2, q=3, k=5))
    parameters = {key: p.detach().clone().requires_grad_() for key, p in module.named_parameters()}
    mask = Lengths(torch.tensor([5, 3]))

    def run(q: Tensor, k: Tensor, *values: Tensor) -> Tensor:
        torch.manual_seed(4)  # drawn alike every time
        return torch.func.functional_call(module, dict(zip(parameters, values, strict=True)), (q, k), {"mask": mask})

    assert torch.autograd.gradcheck(run, (q, k, *parameters.values()), fast_mode=True, atol=1e-4)


def test_the_log_probability_of_a_draw_has_a_gradient() -> None:
    module = built("hard").double()
    q, k = (t.double().requires_grad_() for t in inputs("hard", 2, q=3, k=5))

    def run(q: Tensor, k: Tensor) -> Tensor:
        torch.manual_seed(4)
        return module.attend(q, k, need=Need(log_prob=True)).log_prob  # type: ignore[operator]

    assert torch.autograd.gradcheck(run, (q, k))


@for_each("name", ALL)
def test_values_are_the_keys_unless_given(name: str) -> None:
    module, (q, k) = built(name).eval(), inputs(name, B)
    if name in NO_VALUES:
        with pytest.raises(ValueError, match=r"v must be None for .*, which reads k itself, got v \(3, 7, 8\)"):
            module(q, k, k)
        return
    agree(seeded(module, q, k, k.clone()), seeded(module, q, k))
    v = torch.randn(B, K, E)
    there = seeded(module, q, k, v)
    if name not in HEADS and name not in HARD | {"memory-hop"}:
        torch.testing.assert_close(there.out, there.weights @ v, rtol=1e-4, atol=1e-5)


@for_each("name", sorted(set(ALL) - {"bidaf"}))
def test_keys_are_the_queries_unless_given(name: str) -> None:
    torch.manual_seed(1)
    module, x = mechanism(name, E).eval(), torch.randn(B, Q, E, generator=torch.Generator().manual_seed(2))
    agree(seeded(module, x), seeded(module, x, x))
    assert module(x).shape == (B, Q, width(module, E, E))


@for_each("name", sorted(set(ALL) - {"bidaf"}))
def test_a_mechanism_names_its_backend_or_has_none(name: str) -> None:
    module, (q, k) = built(name), inputs(name, B)
    text = module.explain(q, k)
    assert " runs: " in text or text == f"{type(module).__name__} computes its weights itself: no backend is chosen"


@for_each("name", sorted(ONE_WIDTH))
def test_widths_that_cannot_be_compared_are_refused(name: str) -> None:
    q, k = torch.randn(B, Q, D), torch.randn(B, K, E)
    with pytest.raises(ValueError, match=r"wide for|of one width"):
        mechanism(name, D, E)(q, k)


def test_a_mistyped_name_is_understood() -> None:
    with pytest.raises(ValueError, match="unknown mechanism 'aditive'; did you mean 'additive'\\? known are: dot, "):
        mechanism("aditive", 8)
    with pytest.raises(
        ValueError, match="^luong is a --decoder of regard train translate, whose attention is general;"
    ):
        mechanism("luong", 8)
    assert mechanism("additive", 8)(torch.randn(B, Q, 8), torch.randn(B, K, 8)).shape == (B, Q, 8)


@pytest.mark.parametrize("name", sorted(CHAINED))
@pytest.mark.parametrize("wish", ["log_prob", "lse", "map", "key_index"])
def test_what_cannot_be_told_is_refused(name: str, wish: str) -> None:
    module, (q, k) = built(name), inputs(name, B)
    with pytest.raises(
        ValueError, match=rf"^{wish} is not available from \w+, which computes its own weights; ask for weights"
    ):
        module.attend(q, k, need=Need(**{wish: True}))


def test_the_catalogue_is_public() -> None:
    assert regard.MECHANISMS is MECHANISMS
    assert all(isinstance(mechanism(name, 16), nn.Module) for name in ALL)
