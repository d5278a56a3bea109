"""The terms of the equation as they are tested: a factory for each, and cases in which every two of them meet."""

import functools
import itertools
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from tests import product
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard import Learnable
from regard.attn import catalogue
from regard.attn.backends import BACKENDS
from regard.attn.call import NOTHING, Attended, AttentionCall, AttentionInputs, Need, Terms
from regard.attn.call_builder import build_call
from regard.attn.terms.position import Positions
from regard.kernels.torch_versions import HAS_FLEX

# the backends that this torch has
AVAILABLE = [name for name in BACKENDS if name != "flex" or HAS_FLEX]
# one in so many cases runs on flex
_FLEX_SHARE = 12

# sizes that share no factor: a swapped axis must fail
B, H, Q, K, D, V = 2, 3, 5, 7, 4, 11


@dataclass(frozen=True)
class Sizes:
    b: int = B
    h: int = H
    q: int = Q
    k: int = K
    d: int = D
    v: int = V


SIZES = Sizes()

SCORES: dict[str, Callable[[Sizes], regard.Score]] = {
    "dot": lambda s: regard.Dot(),
    "plain-dot": lambda s: regard.Dot(scale=1.0),
    "bilinear": lambda s: regard.Bilinear(s.d, s.d),
    "additive": lambda s: regard.Additive(s.d, s.d, 6),
    "concat": lambda s: regard.scores.Concat(s.d, s.d, 6),
    "cosine": lambda s: regard.Cosine(scale=4.0),
    "cosine-trained": lambda s: regard.Cosine(scale=Learnable(3.0, heads=s.h)),
    "distance": lambda s: regard.Distance(scale=0.3),
    "euclid": lambda s: regard.Distance(power=1),
    "trilinear": lambda s: regard.scores.Trilinear(s.d),
    "soft-cap": lambda s: regard.scores.SoftCap(2.0, regard.Bilinear(s.d, s.d)),
    "uniform": lambda s: regard.scores.Uniform(),
    "location": lambda s: regard.scores.Location(s.d, 32),
    "location-sensitive": lambda s: regard.scores.LocationSensitive(s.d, s.d, 6, filters=2, width=3),
    "kernel-elu": lambda s: regard.scores.Kernel("elu"),
    "kernel-square": lambda s: regard.scores.Kernel("square"),
    "kernel-taylor": lambda s: regard.scores.Kernel("taylor"),
}


def _drawn(bias: regard.biases.CoPE) -> regard.Bias:
    """With a table that is not zero, as it is before training."""
    nn.init.normal_(bias.table)
    return bias


BIASES: dict[str, Callable[[Sizes], regard.Bias | Tensor | None]] = {
    "none": lambda s: None,
    "alibi": lambda s: regard.ALiBi(s.h),
    "t5": lambda s: regard.T5Buckets(s.h, buckets=4, max_distance=6),
    "t5-back": lambda s: regard.T5Buckets(s.h, buckets=4, max_distance=6, bidirectional=False),
    "shaw": lambda s: regard.Shaw(s.d, clip=2),
    "cope": lambda s: _drawn(regard.biases.CoPE(s.d, 4)),
    "xl": lambda s: regard.RelativeXL(6, s.h, s.d),
    "gaussian": lambda s: regard.biases.LocalGaussian(s.d, 3, window=4.0),
    "added": lambda s: torch.randn(s.h, s.q, s.k),
    "added-row": lambda s: torch.randn(s.b, 1, 1, s.k),
    "hiding": lambda s: torch.randn(s.b, s.h, s.q, s.k).masked_fill(torch.rand(s.b, s.h, s.q, s.k) < 0.3, -torch.inf),
}


def _ids(s: Sizes) -> Tensor:
    return torch.randint(0, 3, (s.b, s.k)).sort(-1).values


def _given(s: Sizes) -> Tensor:
    allowed = torch.rand(s.b, s.h, s.q, s.k) < 0.6
    allowed[..., :1, :] = False  # a row that may look at nothing
    return allowed


def _lengths(s: Sizes) -> Tensor:
    return torch.tensor([max(s.k - 2, 0), 0, 1])[torch.arange(s.b) % 3]


MASKS: dict[str, Callable[[Sizes], regard.Mask | Tensor | None]] = {
    "none": lambda s: None,
    "causal": lambda s: regard.Causal(),
    "window": lambda s: regard.Window(2, 1),
    "window-open": lambda s: regard.Window(1, None),
    "prefix": lambda s: regard.Prefix(3),
    "prefixes": lambda s: regard.Prefix(torch.arange(s.b) * 4),
    "lengths": lambda s: regard.Lengths(_lengths(s)),
    "documents": lambda s: regard.Documents(_ids(s)),
    "edges": lambda s: regard.masks.Edges(torch.randint(0, s.k, (2, 3 * s.k)) if s.k else torch.zeros(2, 0).long()),
    "neighbourhood": lambda s: regard.masks.Neighbourhood((2, max(s.k, 2)), 2),
    "longformer": lambda s: regard.masks.Global([1, 4]) | regard.masks.Dilated(1, 2),
    "moba": lambda s: regard.masks.TopBlocks(2, 2) & regard.Causal(),
    "given": lambda s: regard.BooleanMask(_given(s)),
    "tensor": lambda s: torch.rand(s.b, 1, 1, s.k) < 0.7,
    "causal-lengths": lambda s: regard.Causal() & regard.Lengths(_lengths(s)),
    "window-documents": lambda s: regard.Window(3, 0) & regard.Documents(_ids(s)),
    "either": lambda s: regard.Window(0, 0) | regard.Lengths(_lengths(s)),
    "ahead": lambda s: ~regard.Causal(),
    "not-lengths": lambda s: ~regard.Lengths(_lengths(s)) & regard.Window(3, 3),
}

NORMALIZERS: dict[str, Callable[[Sizes], regard.Normalizer]] = {
    "softmax": lambda s: regard.Softmax(),
    "softmax-cool": lambda s: regard.Softmax(0.6),
    "softmax-trained": lambda s: regard.Softmax(Learnable(1.3, heads=s.h)),
    "sigmoid": lambda s: regard.Sigmoid(-1.0),
    "sigmoid-trained": lambda s: regard.Sigmoid(Learnable(-1.0)),
    "sparsemax": lambda s: regard.Sparsemax(),
    "entmax15": lambda s: regard.Entmax(1.5),
    "entmax13": lambda s: regard.Entmax(1.3),
    "entmax-trained": lambda s: regard.Entmax(Learnable(1.4, heads=s.h)),
    "topk": lambda s: regard.TopK(3),
    "topk-sparsemax": lambda s: regard.TopK(2, regard.Sparsemax()),
    "null": lambda s: regard.normalizers.WithNullSlot(),
    "null-softmax": lambda s: regard.normalizers.WithNullSlot(regard.Softmax(0.7), score=Learnable(0.3, heads=s.h)),
    "null-trained": lambda s: regard.normalizers.WithNullSlot(regard.Sparsemax(), score=Learnable(0.3, heads=s.h)),
    "sum": lambda s: regard.normalizers.Sum(),
}

READS: dict[str, Callable[[Sizes], regard.Read]] = {
    "mix": lambda s: regard.reads.WeightedSum(),
    "argmax": lambda s: regard.Argmax(),
    "straight-through": lambda s: regard.reads.StraightThrough(),
    "sample": lambda s: regard.Sample(),
    "gumbel": lambda s: regard.Gumbel(),
}
FAMILIES: dict[str, dict[str, Any]] = {
    "score": SCORES,
    "bias": BIASES,
    "mask": MASKS,
    "normalize": NORMALIZERS,
    "read": READS,
}
# normalizers whose weights are no weights of keys for any score
NOT_ALONE = {"Identity"}


def term_of(name: str, role: str, sizes: Sizes) -> Any:
    """The term of a mechanism, built for these sizes; None if it has none."""
    if getattr(regard.mechanism(name, sizes.d), "difference", None) is not None:
        return None  # heads that pair, whose terms are those of all others
    with mock.patch.object(catalogue, "HEADS", sizes.h):
        module = regard.mechanism(name, sizes.d)
        if isinstance(module, regard.MultiHead | regard.layers.GraphAttention):
            module = regard.mechanism(name, sizes.d * sizes.h).attention
    return getattr(module, role, None) if isinstance(module, regard.Attention) else None


def add_terms_of_the_catalogue() -> None:
    """Adds a case of every term that a mechanism has and the families above lack, by the name of the mechanism."""
    for role, family in FAMILIES.items():
        listed = {type(None), *(type(make(SIZES)) for make in family.values())}
        for name in regard.MECHANISMS:
            kind = type(term_of(name, role, SIZES))
            if kind not in listed and kind.__name__ not in NOT_ALONE:
                listed.add(kind)
                family[name] = functools.partial(term_of, name, role)


add_terms_of_the_catalogue()
CERTAIN = ("mix", "argmax", "straight-through")


@dataclass(frozen=True)
class Case:
    score: str = "dot"
    bias: str = "none"
    mask: str = "none"
    normalize: str = "softmax"
    read: str = "mix"

    def __str__(self) -> str:
        return "/".join((self.score, self.bias, self.mask, self.normalize, self.read))

    @property
    def possible(self) -> bool:
        """Sums of scores that may be negative can come near zero: Sum is for Kernel alone."""
        return self.normalize != "sum" or (self.score.startswith("kernel") and self.bias == "none")

    def terms(self, sizes: Sizes = SIZES, dtype: torch.dtype = torch.float64) -> dict[str, Any]:
        torch.manual_seed(1)
        built = {
            "score": SCORES[self.score](sizes),
            "bias": BIASES[self.bias](sizes),
            "mask": MASKS[self.mask](sizes),
            "normalize": NORMALIZERS[self.normalize](sizes),
            "read": READS[self.read](sizes),
        }
        for name, term in built.items():
            if isinstance(term, nn.Module) or (isinstance(term, Tensor) and term.is_floating_point()):
                built[name] = term.to(dtype)
        return built


# a case for each backend that does not run the usual one
CASE_OF_BACKEND = {
    "additive": Case("additive"),
    "linear": Case("kernel-elu", normalize="sum"),
    "relative": Case(bias="xl"),
}


def tensors(sizes: Sizes = SIZES, dtype: torch.dtype = torch.float64, seed: int = 2) -> list[Tensor]:
    """q, k and v that want a gradient."""
    torch.manual_seed(seed)
    s = sizes
    shapes = ((s.b, s.h, s.q, s.d), (s.b, s.h, s.k, s.d), (s.b, s.h, s.k, s.v))
    return [torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def cover(*families: Sequence[str], seed: int = 0) -> list[Case]:
    """Few cases in which every two members of different families meet at least once."""
    draw = random.Random(seed)
    names = ("score", "bias", "mask", "normalize", "read")[: len(families)]

    def case(row: Sequence[str]) -> Case:
        return Case(**dict(zip(names, row, strict=True)))

    def meets(row: Sequence[str]) -> set[tuple[int, str, int, str]]:
        return {(a, row[a], b, row[b]) for a, b in itertools.combinations(range(len(row)), 2)}

    wanted = [
        (a, x, b, y)
        for a, b in itertools.combinations(range(len(families)), 2)
        for x in families[a]
        for y in families[b]
    ]
    found: list[Case] = []
    seen: set[tuple[int, str, int, str]] = set()
    for a, x, b, y in wanted:
        if (a, x, b, y) in seen:
            continue
        tries = []
        for _ in range(40):
            row = [draw.choice(family) for family in families]
            row[a], row[b] = x, y
            if case(row).possible:
                tries.append(row)
        if tries:
            best = max(tries, key=lambda row: len(meets(row) - seen))
            seen |= meets(best)
            found.append(case(best))
    return found


CASES = cover(list(SCORES), list(BIASES), list(MASKS), list(NORMALIZERS), list(CERTAIN))
SOFT = [case for case in CASES if case.read == "mix"]
# softmax of a dot product, mixed: what the fast kernels take
FAST = [
    Case(score, bias, mask, normalize)
    for score, bias, mask, normalize in itertools.product(
        ("dot", "trilinear"), ("none", "alibi", "hiding"), MASKS, ("softmax", "softmax-cool")
    )
] + [Case("kernel-elu", mask=mask, normalize="sum") for mask in MASKS]
every_case = for_each("case", CASES + FAST, ids=str)
# laws that a backend breaks for most cases of a term, or for none
some_cases = for_each("case", CASES + FAST, ids=str, share=0.25)
soft_cases = for_each("case", SOFT + FAST, ids=str, share=0.25)


def resolved(
    q: Tensor,
    k: Any,
    v: Tensor | None = None,
    *,
    mask: Any = None,
    positions: Positions | None = None,
    need: Need = NOTHING,
    **terms: Any,
) -> AttentionCall:
    """The call of these arguments, named as `regard.attend` names them."""
    return build_call(AttentionInputs(q, k, v, mask, positions, need), Terms.with_defaults(**terms))[0]


def willing(q: Tensor, k: Any, v: Tensor | None = None, *, need: Need = NOTHING, **terms: Any) -> list[str]:
    """The backends that would run the call."""
    leaves(terms)
    call = resolved(q, k, v, need=need, **terms)
    return [name for name, backend in BACKENDS.items() if backend.unsupported_reason(call) is None]


def compared(q: Tensor, k: Any, v: Tensor | None = None, **terms: Any) -> list[str]:
    """The backends that would run the call; without flex in most cases of `make test`: the reference that torch has for
    it takes ten times as long as a kernel.
    """
    names = willing(q, k, v, **terms)
    described = "/".join(f"{terms.get(name)}" for name in FAMILIES).encode()
    if "flex" in names and not product.whole and zlib.crc32(described) % _FLEX_SHARE:
        names.remove("flex")
    return names


def leaves(terms: dict[str, Any]) -> dict[str, Tensor]:
    """Everything in the terms that can be trained, by name."""
    found: dict[str, Tensor] = {}
    for name in ("score", "bias", "normalize"):
        term = terms.get(name)
        if isinstance(term, nn.Module):
            found |= {f"{name}.{key}": p for key, p in term.named_parameters()}
        elif isinstance(term, Tensor):
            found[name] = term.requires_grad_()
    return found


def slopes(got: Attended, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The gradient of a weighted sum of the output with regard to every input; zeros where there is none."""
    torch.manual_seed(3)
    loss = (got.out * torch.randn(got.out.shape, dtype=torch.float64).to(got.out.dtype)).sum()
    if not loss.requires_grad:
        return {name: torch.zeros_like(t) for name, t in inputs.items()}
    grads = torch.autograd.grad(loss, list(inputs.values()), allow_unused=True)
    return {name: torch.zeros_like(t) if g is None else g for (name, t), g in zip(inputs.items(), grads, strict=True)}


def run(
    q: Tensor, k: Tensor, v: Tensor, terms: dict[str, Any], backend: str | None, **more: Any
) -> tuple[Tensor, dict[str, Tensor]]:
    """Output and all gradients."""
    inputs = {"q": q, "k": k, "v": v, **leaves(terms)}
    got = regard.attend(q, k, v, **terms, backend=backend, **more)
    return got.out, slopes(got, inputs)


def close(got: Tensor, want: Tensor, what: str, rtol: float = 1e-7, atol: float = 1e-9) -> None:
    torch.testing.assert_close(got, want, rtol=rtol, atol=atol, msg=lambda said: f"{what}: {said}")
