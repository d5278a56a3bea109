"""Every mechanism, gate and layer on a pretended GPU, against the CPU; the tables have their reads and operations."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.decoding.toy import BOS, EOS, PLACES, Standing, Toy
from tests.gpu.comparison import Call, compare, run
from tests.gpu.pretend_cuda import Observation, observed
from tests.gpu.tables import Table
from torch import Tensor, nn

import regard
from regard import Need, masks
from regard.attn.backends import _flex_blocks, dot_softmax
from regard.attn.call import AttentionInputs, Terms
from regard.attn.call_builder import build_call
from regard.decoding.beam import beam
from regard.losses.vocabulary import linear_cross_entropy

Place = Callable[[Tensor], Tensor]
Tables = dict[str, Table]

# batch, queries, keys, width; and larger ones
SIZES, LARGER = (3, 5, 7, 8), (5, 5, 11, 8)

# of the sizes and of what places a tensor on the device
MASKS: dict[str, Callable[[int, int, int, Place], Any]] = {
    "no mask": lambda b, q, k, place: None,
    "Causal": lambda b, q, k, place: regard.Causal(),
    "Lengths": lambda b, q, k, place: regard.Lengths(place(torch.arange(b) % k + 1)),
    "Lengths of a list": lambda b, q, k, place: regard.Lengths([n % k + 1 for n in range(b)]),
    "Window & Lengths": lambda b, q, k, place: regard.Window(3, 2) & regard.Lengths(place(torch.arange(b) % k + 1)),
    "Documents": lambda b, q, k, place: regard.Documents(place(torch.arange(b * k).view(b, k) // 3)),
    "Prefix": lambda b, q, k, place: regard.Prefix(place(torch.arange(b) % k)),
    "boolean tensor": lambda b, q, k, place: place(torch.arange(b * q * k).view(b, q, k) % 3 > 0),
    "~Causal | Window": lambda b, q, k, place: ~regard.Causal() | regard.Window(2, 0),
    "Neighbourhood | Global": lambda b, q, k, place: masks.Neighbourhood(k, 3, 2) | masks.Global([0]),
    "Windows & ~Axial": lambda b, q, k, place: masks.Windows((1, k), (1, 3), (0, 1)) & ~masks.Axial((1, k), 0),
    "CrissCross": lambda b, q, k, place: masks.CrissCross((k, 1)),
    "Strided | Fixed | Dilated": lambda b, q, k, place: masks.Strided(3) | masks.Fixed(4) | masks.Dilated(1, 2),
    "RandomBlocks": lambda b, q, k, place: masks.RandomBlocks(16, 2, 3),
    "Edges": lambda b, q, k, place: masks.Edges(place(torch.arange(2 * k).view(2, k) % k)),
    "TopBlocks & Causal": lambda b, q, k, place: masks.TopBlocks(2, 2) & regard.Causal(),
}


def attention(sizes: tuple[int, ...] = SIZES, mask: str = "Causal", need: Need | None = None) -> Call:
    """A call of a mechanism with a mask."""

    def call(module: Any, place: Place) -> Any:
        b, q, k, width = sizes
        if mask == "Documents":  # of queries and keys alike
            q = k
        queries, keys = place(torch.randn(b, q, width)), place(torch.randn(b, k, width))
        fitted = MASKS[mask](b, q, k, place)
        return (
            module(queries, keys, mask=fitted) if need is None else module.attend(queries, keys, mask=fitted, need=need)
        )

    return call


def in_half(call: Call, dtype: torch.dtype | None) -> Call:
    """The call under autocast, or in a half type."""

    def halved(module: nn.Module, place: Place) -> Any:
        if dtype is None:
            with torch.autocast("cuda", torch.bfloat16):
                return call(module, place)
        return call(module.to(dtype), lambda t: place(t.to(dtype) if t.is_floating_point() else t))

    return halved


def mechanism(name: str) -> Callable[[], nn.Module]:
    return lambda: regard.mechanism(name, SIZES[-1], SIZES[-1])


def count(tables: Tables, name: str, observation: Observation, operations: bool = True) -> None:
    """Compares with the tables."""
    tables["reads"].compare({name: observation.reads.total()}, f"The lines that read: {dict(observation.reads)}")
    if operations:
        tables["operations"].compare({name: observation.operations})


@pytest.mark.parametrize("name", regard.MECHANISMS)
def test_a_mechanism_trains_and_evaluates(name: str, tables: Tables) -> None:
    count(tables, f"{name}, training", compare(mechanism(name), attention()))
    count(tables, f"{name}, evaluation", compare(mechanism(name), attention(mask="Lengths"), training=False))


@pytest.mark.parametrize("name", regard.MECHANISMS)
def test_a_mechanism_returns_what_is_asked_for(name: str, tables: Tables) -> None:
    weights = compare(mechanism(name), attention(need=Need(weights=True, entropy=True)))
    count(tables, f"{name}, weights", weights, operations=False)
    lse = compare(mechanism(name), attention(mask="no mask", need=Need(lse=True)), training=False)
    count(tables, f"{name}, lse", lse, operations=False)


# how far numbers of a half type are from those of the CPU, as a share of the largest one
HALF_TYPES = {torch.float16: 1e-2, torch.bfloat16: 8e-2}


def takes_half_types(build: Callable[[], nn.Module], call: Call) -> None:
    """Training in each half type equals that of the CPU; under autocast, whose rules are the device's, it is finite."""
    for dtype, tolerance in HALF_TYPES.items():
        torch.manual_seed(0)
        module = build()
        expected = run(copy.deepcopy(module), in_half(call, dtype), "cpu", training=True)
        actual = run(module, in_half(call, dtype), "cuda", training=True)
        assert actual.refusal == expected.refusal
        for got, want in zip(*[each.outputs + each.gradients for each in (actual, expected)], strict=True):
            assert got.dtype == want.dtype
            assert (got.cpu().double() - want.double()).norm() <= tolerance * want.double().norm() + tolerance
    half = run(build(), in_half(call, None), "cuda", training=True)
    assert half.outputs
    assert all(t.isfinite().all() for t in (*half.outputs, *half.gradients))


@pytest.mark.parametrize("name", regard.MECHANISMS)
def test_a_mechanism_takes_half_types(name: str) -> None:
    takes_half_types(mechanism(name), attention())


DROPPING: dict[str, Callable[[], nn.Module]] = {
    "dot": lambda: regard.Attention(dropout=0.5),
    "additive": lambda: regard.Attention(regard.Additive(8, 8, 6), dropout=0.5),
    "sigmoid": lambda: regard.Attention(normalize=regard.Sigmoid(), dropout=0.5),
    "heads": lambda: regard.MultiHead(8, 2, dropout=0.5),
}


@pytest.mark.parametrize("name", DROPPING)
def test_dropout_is_sampled_on_the_device(name: str) -> None:
    for mask in ("Causal", "Lengths"):
        dropped = run(DROPPING[name](), attention(mask=mask), "cuda", training=True)
        assert all(t.isfinite().all() for t in (*dropped.outputs, *dropped.gradients))
        assert not dropped.observation.reads


@pytest.mark.parametrize("mask", MASKS)
def test_a_mask_costs_the_same_for_more_samples_and_keys(mask: str, tables: Tables) -> None:
    small = compare(mechanism("dot"), attention(mask=mask))
    count(tables, f"dot, {mask}", small)
    large = compare(mechanism("dot"), attention(LARGER, mask))
    assert large == small


@pytest.mark.whole
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", regard.MECHANISMS)
def test_a_mechanism_takes_every_mask(name: str, mask: str) -> None:
    compare(mechanism(name), attention(mask=mask))


@pytest.mark.parametrize("name", regard.MECHANISMS)
def test_a_mechanism_costs_the_same_for_more_samples_and_keys(name: str) -> None:
    small, large = (compare(mechanism(name), attention(sizes), training=False) for sizes in (SIZES, LARGER))
    assert large == small


# recurrent: a row of an image is a step
READS_ROWS = ("gated-cell", "attention-module")


@pytest.mark.parametrize("name", regard.GATES)
def test_a_gate_costs_the_same_for_more_samples_and_places(name: str, tables: Tables) -> None:
    def call(batch: int, side: int) -> Call:
        return lambda module, place: module(place(torch.randn(batch, 8, side, side)))

    def build() -> nn.Module:
        return regard.gate(name, 8)

    training = compare(build, call(3, 9))
    count(tables, f"{name}, training", training)
    assert compare(build, call(5, 9 if name in READS_ROWS else 12)) == training
    count(tables, f"{name}, evaluation", compare(build, call(3, 9), training=False))
    takes_half_types(build, call(3, 9))


def steps(heads: regard.MultiHead, place: Place) -> list[Tensor]:
    """Two tokens, one after the other, and their keys."""
    first, cache = heads.step(place(torch.randn(3, 1, 8)))
    second, cache = heads.step(place(torch.randn(3, 1, 8)), cache)
    return [first, second, cache.keys]


def emissions(place: Place) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of tags for five tokens of three sentences, the tags and which tokens there are."""
    lengths = torch.tensor([5, 2, 4])
    return place(torch.randn(3, 5, 4)), place(torch.randint(4, (3, 5))), place(torch.arange(5) < lengths[:, None])


def beam_search(_: nn.Module, place: Place) -> Tensor:
    """The scores of sentences of at most six tokens."""
    toy = Toy(place(torch.randn(PLACES, 9)).detach(), place(torch.randn(PLACES, 5)).detach())
    state = Standing(place(torch.tensor([[3], [5], [8]])), place(torch.tensor([5, 2, 3])))
    found = beam(toy, state, bos=BOS, eos=EOS, limits=place(torch.tensor([6, 4, 6])), size=3)
    return place(torch.tensor([hypotheses[0].score for hypotheses in found]))


def recorded(heads: regard.MultiHead, place: Place) -> Tensor:
    x = place(torch.randn(3, 5, 8))
    with regard.record(heads) as recording:
        heads(x)
    return place(recording.maps[0].weights[:])


def cross_entropy(layer: nn.Linear, place: Place) -> Tensor:
    return linear_cross_entropy(place(torch.randn(6, 8)), layer.weight, place(torch.randint(9, (6,))))[0]


def two_heads() -> list[regard.Attention]:
    return [regard.Attention(), regard.Attention(normalize=regard.Sparsemax())]


def eight_bit() -> nn.Module:
    heads = regard.MultiHead(32, 2)
    regard.quantize(heads)
    return heads


def normed_and_gated() -> nn.Module:
    return regard.MultiHead(8, 2, qk_norm=regard.layers.RMSQKNorm(4), gate=regard.layers.OutputGate(8, 2))


def continued(model: Any, place: Place) -> list[Tensor]:
    """The logits after a prompt, which is padded, and after one more token."""
    state = model.init_state(place(torch.tensor([[3, 4, 5], [6, 7, 0]])), place(torch.tensor([3, 2])))
    first = model.step(place(torch.tensor([[4], [5]])), state)
    return [first.logits, model.step(place(torch.tensor([[8], [3]])), first.state).logits]


LAYERS: dict[str, tuple[Callable[[], nn.Module], Call]] = {
    "MultiHead, itself": (lambda: regard.MultiHead(8, 2), lambda m, place: m(place(torch.randn(3, 5, 8)))),
    "MultiHead, steps": (lambda: regard.MultiHead(8, 2, rotate=regard.Rotary(4)), steps),
    "MultiHead, an attention per head": (lambda: regard.MultiHead(8, 2, attention=two_heads()), attention()),
    "MultiHead, norms and a gate": (normed_and_gated, lambda m, place: m(place(torch.randn(3, 5, 8)))),
    "MultiHead, recorded": (lambda: regard.MultiHead(8, 2), recorded),
    "MultiHead, 8-bit": (eight_bit, attention((3, 5, 7, 32))),
    "Sinusoidal": (lambda: regard.Sinusoidal(8), lambda m, place: m(place(torch.randn(3, 5, 8)))),
    "LearnedPositions": (
        lambda: regard.positions.LearnedPositions(6, 8),
        lambda m, place: m(place(torch.randn(3, 5, 8))),
    ),
    **{
        f"{name}, steps": (lambda model=model: model(9, width=8, layers=1, heads=2), continued)
        for name, model in regard.models.LANGUAGE_MODELS.items()
        if name != "recurrent-language-model"
    },
    "CRF, loss": (lambda: regard.CRF(4), lambda m, place: m.loss(*emissions(place))),
    "CRF, loss without mask": (lambda: regard.CRF(4), lambda m, place: m.loss(*emissions(place)[:2])),
    "CRF, marginals": (lambda: regard.CRF(4), lambda m, place: m.marginals(*emissions(place)[::2])),
    "CRF, path": (
        lambda: regard.CRF(4),
        lambda m, place: [place(torch.tensor(path)) for path in m.decode(*emissions(place)[::2])],
    ),
    "CRF, three paths": (
        lambda: regard.CRF(4),
        lambda m, place: [place(torch.tensor(paths[2].tags)) for paths in m.decode(*emissions(place)[::2], k=3)],
    ),
    "beam search": (nn.Identity, beam_search),
    "cross-entropy": (lambda: nn.Linear(8, 9), cross_entropy),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_trains_and_evaluates(name: str, tables: Tables) -> None:
    for mode in ("training", "evaluation"):
        if not (mode == "training" and name in ("beam search", "MultiHead, 8-bit", "MultiHead, recorded")):
            count(tables, f"{name}, {mode}", compare(*LAYERS[name], training=mode == "training"))


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in ("beam search", "MultiHead, 8-bit")])
def test_a_layer_takes_half_types(name: str) -> None:
    takes_half_types(*LAYERS[name])


# 2^20 weights, from which on a kernel is compiled: samples, heads, queries and keys, width
LONG = (2, 2, 512, 8)
FLEX: dict[str, Callable[[Place], dict[str, Any]]] = {
    "Window": lambda place: {"mask": regard.Window(60, 0)},
    "Causal & Lengths": lambda place: {"mask": regard.Causal() & regard.Lengths(place(torch.tensor([500, 300])))},
    "Documents": lambda place: {"mask": regard.Documents(place(torch.arange(1024).view(2, 512) // 100))},
    "boolean tensor": lambda place: {"mask": place(torch.arange(512 * 512).view(512, 512) % 3 > 0)},
    "Causal, ALiBi": lambda place: {"mask": regard.Causal(), "bias": regard.ALiBi(2)},
    "T5Buckets": lambda place: {"bias": regard.T5Buckets(2)},
    "Shaw": lambda place: {"bias": regard.Shaw(8)},
    "RelativeXL": lambda place: {"bias": regard.RelativeXL(8, 2, 8)},
    "SoftCap": lambda place: {"score": regard.scores.SoftCap(2.0)},
    "null slot": lambda place: {"normalize": regard.normalizers.WithNullSlot(score=regard.Learnable(0.3, heads=2))},
    "general, Window": lambda place: {"score": regard.Bilinear(8, 8), "mask": regard.Window(60, 0)},
    "lse": lambda place: {},
}


@pytest.mark.parametrize("name", FLEX)
def test_a_long_call_is_one_kernel(name: str, tables: Tables) -> None:
    need = Need(lse=name == "lse")

    def build() -> nn.Module:
        terms = FLEX[name](lambda t: t)
        terms.pop("mask", None)
        return regard.Attention(**terms)

    def call(layer: regard.Attention, place: Place) -> Any:
        q, k, v = (place(torch.randn(LONG)) for _ in range(3))
        mask = FLEX[name](place).get("mask")
        if q.device.type == "cuda":
            assert "  flex     runs" in layer.explain(q, k, v, mask=mask, need=need)
        return layer.attend(q, k, v, mask=mask, need=need)

    _flex_blocks._kept.clear()
    count(tables, f"flex, {name}, training", compare(build, call))
    count(tables, f"flex, {name}, evaluation", compare(build, call, training=False))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("mask", ["boolean tensor", "Lengths", "Documents"])
def test_blocks_and_packing_cost_the_same_for_more_samples_and_keys(mask: str, dtype: torch.dtype) -> None:
    costs = []
    for batch, length in ((2, 130), (5, 300)):
        q = torch.randn(batch, 2, length, 8, device="cuda", dtype=dtype, requires_grad=True)
        fitted = MASKS[mask](batch, length, length, lambda t: t.to("cuda"))
        fitted = fitted.unsqueeze(1) if isinstance(fitted, Tensor) else fitted
        backend = "flex" if dtype == torch.float32 or mask == "boolean tensor" else "varlen"
        _flex_blocks._kept.clear()
        with observed() as observation:
            regard.attention(q, q, mask=fitted, backend=backend).sum().backward()
        costs.append((observation.operations, observation.reads.total()))
    assert costs[0] == costs[1]


@pytest.mark.parametrize("name", ["general", "cosine", "trilinear"])
def test_half_inputs_stay_half(name: str) -> None:
    """Scores project half types in float32; the kernels get them in the half type that they are fast for."""
    layer = mechanism(name)().to("cuda", torch.float16)
    q = torch.randn(2, 3, 5, 8, device="cuda", dtype=torch.float16)
    call, _ = build_call(AttentionInputs(q, q, q), Terms(score=layer.score))
    assert call.queries.dtype == torch.float32
    assert {t.dtype for t in dot_softmax.kernel_inputs(call)} == {torch.float16}
