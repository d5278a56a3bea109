"""Parts of heads together, sampled by seed: every path computes the formula, or refuses in a sentence."""

import copy
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard import Attention, Learnable, MultiHead
from regard.export.plain_attention import attention_reason
from regard.layers import Differential, ForgetGate, L2QKNorm, LayerQKNorm, OutputGate, RMSQKNorm, WholeRMSQKNorm
from regard.normalizers import TalkingWeights, WithNullSlot
from regard.positions import AxialSections, DynamicNTKScaling, MRoPESections, YaRNScaling
from regard.scores import SoftCap, TalkingScores

B, DIM, T = 2, 10, 11
ROTATIONS: list[Callable[[int], regard.Rotary] | None] = [
    None,
    lambda d: regard.Rotary(d),
    lambda d: regard.Rotary(d, pairs="neighbours", base=50.0),
    lambda d: regard.Rotary(d, rotary_dim=d - 2 or d),
    lambda d: regard.Rotary(d, scaling=YaRNScaling(4.0, 5)),
    lambda d: regard.Rotary(d, scaling=DynamicNTKScaling(3.0, 4, length=16)),
    lambda d: regard.Rotary(d, axes=MRoPESections((1, d // 2 - 1)) if d > 2 else None),
    lambda d: regard.Rotary(d, axes=AxialSections((1, d // 2 - 1), grid=(4, 3)) if d > 2 else None),
]


def sample(seed: int, dim: int = DIM) -> MultiHead:
    """Heads with parts that are drawn, and parameters that are not those of the start."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    difference = draw.random() < 0.25
    d, group = draw.choice([4, 6, 8]), draw.choice([1, 1, 2, 3])
    kv_heads = draw.choice([2, 4] if difference else [1, 2, 3])
    heads, wide = kv_heads * group, 2 if difference else 1
    norm = draw.choice(
        [
            None,
            lambda: RMSQKNorm(d),
            lambda: RMSQKNorm(d, offset=1.0),
            lambda: WholeRMSQKNorm(heads * d, kv_heads * d),
            lambda: LayerQKNorm(d, bias=draw.random() < 0.5),
            lambda: L2QKNorm(3.0),
        ]
    )
    rotate = draw.choice(ROTATIONS)
    gate = draw.choice([None, lambda: OutputGate(dim, heads // wide, bias=True)])
    gate = draw.choice([gate, lambda: OutputGate(dim, heads // wide, wide * d)])
    score: regard.Score = regard.Dot(draw.choice([None, 0.3]))
    normalize: regard.Normalizer = regard.Softmax(draw.choice([1.0, 0.7]))
    forget = draw.random() < 0.25
    if not forget:
        score = draw.choice([lambda s: s, lambda s: SoftCap(0.8, s), lambda s: TalkingScores(heads, s)])(score)
        slot = draw.choice([0.4, Learnable(0.0, heads=heads), Learnable(0.0)])
        normalize = draw.choice([lambda n: n, lambda n: WithNullSlot(n, score=slot)])(normalize)
        normalize = draw.choice([lambda n: n, lambda n: n, lambda n: TalkingWeights(heads, n)])(normalize)
    layer = MultiHead(
        dim,
        heads,
        kv_heads=kv_heads,
        head_dim=d,
        attention=Attention(score, normalize=normalize),
        qk_norm=None if norm is None else norm(),
        rotate=None if rotate is None else rotate(d),
        difference=Differential(d, layer=draw.choice([1, 4])) if difference else None,
        gate=None if gate is None else gate(),
        forget=ForgetGate(dim, kv_heads, bias=2.0) if forget else None,
        bias=draw.random() < 0.5,
    ).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return layer


def formula(layer: MultiHead, x: Tensor, allowed: Tensor) -> Tensor:  # "b t d", bool "b t t"
    """The equation, one part per line."""
    q, k, v = (
        F.linear(x, linear.weight, linear.bias).unflatten(-1, (n, -1))
        for linear, n in ((layer.query, layer.heads), (layer.key, layer.kv_heads), (layer.value, layer.kv_heads))
    )
    q, k = _normed(layer.qk_norm, q, k)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # "b h t d"
    if layer.rotate is not None:
        q, k = _rotated(layer.rotate, q), _rotated(layer.rotate, k)
    group = layer.heads // layer.kv_heads
    k, v = (t.repeat_interleave(group, 1) for t in (k, v))
    normalize, score = layer.attention.normalize, layer.attention.score
    after = None
    if isinstance(normalize, TalkingWeights):
        after, normalize = normalize.mixture, normalize.normalize
    slot = None
    if isinstance(normalize, WithNullSlot):
        slot, normalize = normalize.score, normalize.normalize
    mixture, cap = None, None
    if isinstance(score, TalkingScores):
        mixture, score = score.mixture, score.score
    elif isinstance(score, SoftCap):
        cap, score = score.cap, score.score
    s = q @ k.mT * (layer.head_dim**-0.5 if score.scale is None else score.scale)
    s = s if cap is None else cap * torch.tanh(s / cap)
    s = s if mixture is None else torch.einsum("nm,bmqk->bnqk", mixture, s)
    if layer.forget is not None:
        total = F.logsigmoid(layer.forget.map(x)).cumsum(1).mT.repeat_interleave(group, 1)  # "b h t"
        s = s + total.unsqueeze(-1) - total.unsqueeze(-2)
    s = s.masked_fill(~allowed.unsqueeze(1), -torch.inf) / (normalize.temperature or 1.0)
    if slot is not None:
        n = torch.as_tensor(slot, dtype=s.dtype).reshape(1, -1, 1, 1) / (normalize.temperature or 1.0)
        s = torch.cat([s, n.expand(*s.shape[:-3], s.shape[-3], s.shape[-2], 1)], -1)
    w = torch.softmax(s, -1)[..., : k.shape[-2]]
    w = w if after is None else torch.einsum("nm,bmqk->bnqk", after, w)
    if layer.difference is not None:
        part = layer.difference
        factor = (part.query_1 @ part.key_1).exp() - (part.query_2 @ part.key_2).exp() + part.start
        first, second = v.chunk(2, 1)
        pairs = torch.cat([first, second], -1)
        first, second = (each @ pairs for each in w.chunk(2, 1))
        out = first - factor * second
        out = out / (out.square().mean(-1, keepdim=True) + 1e-5).sqrt() * (1 - part.start)
    else:
        out = w @ v
    out = out.transpose(1, 2)
    if layer.gate is not None:
        out = out * torch.sigmoid(layer.gate.map(x)).unflatten(-1, (-1, layer.gate.channels))
    return F.linear(out.flatten(-2), layer.out.weight, layer.out.bias)


def _normed(norm: Any, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    if isinstance(norm, L2QKNorm):
        q, k = (t / t.square().sum(-1, keepdim=True).sqrt() for t in (q, k))
        return q * norm.scale * q.shape[-1] ** 0.5, k
    if isinstance(norm, LayerQKNorm):
        return tuple(  # type: ignore[return-value]
            (t - t.mean(-1, keepdim=True)) / (t.var(-1, keepdim=True, correction=0) + each.eps).sqrt() * each.weight
            + (0.0 if each.bias is None else each.bias)
            for t, each in ((q, norm.query), (k, norm.key))
        )
    if norm is None:
        return q, k
    made = []
    for t, gain in ((q, norm.query_gain), (k, norm.key_gain)):
        axes = (-2, -1) if isinstance(norm, WholeRMSQKNorm) else (-1,)
        gain = gain.view(t.shape[-2:]) if isinstance(norm, WholeRMSQKNorm) else gain + norm.offset
        made.append(t / (t.square().mean(axes, keepdim=True) + norm.eps).sqrt() * gain)
    return made[0], made[1]


def _rotated(rotate: regard.Rotary, x: Tensor) -> Tensor:  # "b h t d"
    """Pairs as complex numbers, by angles that tests/parity/test_rotary.py compares with those of transformers."""
    r = rotate.rotary_dim
    cos, sin = rotate.turns(x)
    pairs = x[..., :r].unflatten(-1, (2, -1)).mT if rotate.pairs == "halves" else x[..., :r].unflatten(-1, (-1, 2))
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.complex(cos, sin))
    turned = turned.mT if rotate.pairs == "halves" else turned
    return torch.cat([turned.flatten(-2), x[..., r:]], -1)


def masks(draw: random.Random) -> tuple[regard.Mask | Tensor, Tensor, Tensor]:  # bool "b t t", bool "b t"
    """A mask as a value, the pairs that it allows, and the tokens that are no padding; every token sees itself."""
    causal, at, eye = torch.ones(B, T, T).tril().bool(), torch.arange(T), torch.eye(T).bool()
    near = causal & (at.unsqueeze(-1) - at <= 3)
    right = at < torch.tensor([T, draw.randrange(2, T)]).unsqueeze(-1)
    left, every = right.flip(-1), torch.ones(B, T).bool()
    padded, late = (causal & (real.unsqueeze(-2) | eye) for real in (right, left))
    kind = draw.choice(["causal", "window", "tensor", "padding", "left"])
    if kind in ("causal", "window"):
        return (regard.Causal(), causal, every) if kind == "causal" else (regard.Window(3, 0), near, every)
    if kind == "tensor":
        return near, near, every
    return (padded, padded, right) if kind == "padding" else (regard.Causal() & regard.BooleanMask(late), late, left)


def assert_near(got: Tensor, want: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(got.to(want.dtype), want, rtol=tolerance, atol=tolerance)


def assert_alike(got: Tensor, want: Tensor, share: float) -> None:
    """The length of the difference is at most this share of that of the numbers."""
    assert (got.to(want.dtype) - want).norm() <= share * want.norm()


def steps(layer: MultiHead, x: Tensor, allowed: Tensor, draw: random.Random) -> Tensor:
    """All tokens in chunks of random lengths, with a cache whose rows a beam search reorders on the way."""
    outs, past, t = [], None, 0
    while t < T:
        n = min(draw.choice([1, 1, 1, 2, 4]), T - t)
        mask = None if n == 1 and bool(allowed[:, t, : t + 1].all()) else allowed[:, t : t + n, : t + n]
        out, past = layer.step(x[:, t : t + n].contiguous(), past, mask=mask)
        if draw.random() < 0.3:
            past = past.reorder(torch.tensor([1, 0])).reorder(torch.tensor([1, 0]))
        outs.append(out)
        t += n
    return torch.cat(outs, 1)


SEEDS = range(48)


@for_each("seed", SEEDS, share=0.2)
def test_training_is_the_formula(seed: int) -> None:
    """In float32 beside the formula in float64: the output and every gradient."""
    layer, x = sample(seed), torch.randn(B, T, DIM)
    wide, (mask, allowed, real) = copy.deepcopy(layer).double(), masks(random.Random(seed))
    leaves = [x.requires_grad_(), *layer.parameters()]
    others = [x.detach().double().requires_grad_(), *wide.parameters()]
    got, want = layer(x, mask=mask)[real], formula(wide, others[0], allowed)[real]
    assert_near(got, want.float(), 3e-5)
    ours = torch.autograd.grad(got.square().sum(), leaves)
    theirs = torch.autograd.grad(want.square().sum(), others)
    for one, other in zip(ours, theirs, strict=True):
        scale = max(1.0, float(other.abs().max()))
        assert_near(one / scale, other.float() / scale, 1e-4)


@for_each("seed", SEEDS, share=0.2)
@torch.no_grad()
def test_every_path_of_inference_is_the_formula(seed: int) -> None:
    """Whole, by steps that may be native, recorded, intervened, in strides of another order and in other types."""
    layer, x, draw = sample(seed), torch.randn(B, T, DIM), random.Random(seed)
    wide, (mask, allowed, real) = copy.deepcopy(layer).double(), masks(draw)
    want = formula(wide, x.double(), allowed)[real]

    def both(layer: MultiHead, x: Tensor) -> list[Tensor]:
        return [each[real] for each in (layer(x, mask=mask), steps(layer, x, allowed, draw))]

    for got in both(wide, x.double()):
        assert_near(got, want, 1e-9)
    want = want.float()
    for strided in (x, x.permute(2, 1, 0).contiguous().permute(2, 1, 0)):
        for got in both(layer, strided):
            assert_near(got, want, 3e-5)
    with regard.record(layer) as recording:
        assert_near(layer(x, mask=mask)[real], want, 3e-5)
    assert len(recording) == 1
    with regard.intervene(layer, lambda weights, allowed: weights) as intervention:
        assert_near(layer(x, mask=mask)[real], want, 3e-5)
    assert sum(intervention.calls.values()) == 1
    # a difference of two rounded maps, divided by its norm, has few digits
    share = 0.2 if layer.difference is not None else 0.05
    for dtype in (torch.bfloat16, torch.float16):
        for got in both(copy.deepcopy(layer).to(dtype), x.to(dtype)):
            assert_alike(got, want, share)
    with torch.autocast("cpu", torch.bfloat16):
        for got in both(layer, x):
            assert_alike(got, want, share)


@for_each("seed", SEEDS, share=0.15)
@torch.no_grad()
def test_exchanged_terms_and_parameters_keep_the_parts(seed: int) -> None:
    """Parameters from outside, one sample at a time, terms that are swapped, 8-bit weights, formats of others."""
    layer, x, mask, allowed = wide_sample(seed)
    want = formula(layer, x, allowed)
    parameters = {name: 0.9 * p for name, p in layer.named_parameters()}
    other = copy.deepcopy(layer)
    other.load_state_dict({**layer.state_dict(), **parameters})
    called = torch.func.functional_call(layer, parameters, (x,), {"mask": mask})
    assert_near(called, formula(other, x, allowed), 3e-5)
    assert_near(torch.func.vmap(lambda row: layer(row, mask=mask))(x), want, 3e-5)
    other = copy.deepcopy(layer)
    other.attention.normalize = regard.Sparsemax()
    with regard.swap(layer, normalize=regard.Sparsemax()):
        assert_near(layer(x, mask=mask), other(x, mask=mask), 1e-6)
        assert_near(steps(layer, x, allowed, random.Random(seed)), other(x, mask=mask), 3e-5)
    assert_near(layer(x, mask=mask), want, 3e-5)
    for activations in ("float32", "int8"):
        packed = copy.deepcopy(layer)
        regard.quantize(packed, activations=activations)
        whole, exact = packed(x, mask=mask), activations == "float32"
        assert_alike(steps(packed, x, allowed, random.Random(seed)), whole, 3e-5 if exact else 0.05)
        assert_alike(whole, want, 0.1)
    attention = layer.attention
    is_plain = not layer.extra_parts and attention.score.scale is None and repr(attention.normalize) == "Softmax()"
    assert (attention_reason(nn.Sequential(layer)) is None) == is_plain


@for_each("seed", range(8), share=0.15)
@torch.no_grad()
def test_programs_of_torch_are_the_formula(seed: int) -> None:
    layer, x, mask, allowed = wide_sample(seed)
    want = formula(layer, x, allowed)
    assert_near(torch.compile(layer, backend="eager")(x, mask=mask), want, 3e-5)
    program = torch.export.export(layer, (x,), {"mask": allowed[0]}, strict=False)
    assert_near(program.module()(x, mask=allowed[0]), want, 3e-5)


def wide_sample(seed: int) -> tuple[MultiHead, Tensor, regard.Mask, Tensor]:
    """Heads of enough weights for 8 bits, their input, and the causal mask, also as pairs."""
    return sample(seed, dim=256), torch.randn(B, T, 256) / 5, regard.Causal(), torch.ones(B, T, T).tril().bool()
