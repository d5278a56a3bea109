"""Multi-head layers of other libraries, 512 wide with 8 heads, all in float32 and without dropout."""

import functools
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from benchmarks.table import Case, Row, absent, cost, gain
from benchmarks.timing import Effort, backward, compare
from regard.layers import Differential, ForgetGate, Latent, OutputGate, RMSQKNorm
from regard.normalizers import TalkingWeights, WithNullSlot
from regard.scores import SoftCap, TalkingScores

DIM, HEADS = 512, 8
Layer = tuple[nn.Module, Callable[[Tensor], Tensor]]  # the module, and a call of it


class Lean(nn.Module):
    """The smallest form of multi-head self-attention: one packed projection, SDPA, one projection out."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:  # "b n d" -> "b n d"
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # "3 b h n d"
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))


def regard_and_lean() -> tuple[regard.MultiHead, Lean]:
    """Both with the same weights."""
    mine, lean = regard.MultiHead(DIM, HEADS), Lean(DIM, HEADS)
    with torch.no_grad():
        for part in ("weight", "bias"):
            packed = [getattr(linear, part) for linear in (mine.query, mine.key, mine.value)]
            getattr(lean.qkv, part).copy_(torch.cat(packed))
            getattr(lean.out, part).copy_(getattr(mine.out, part))
    return mine, lean


def torch_layer() -> Layer:
    layer = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
    return layer, lambda x: layer(x, x, x)[0]


def keras_layer() -> Layer:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    os.environ.setdefault("KERAS_HOME", os.path.join(tempfile.gettempdir(), "regard-keras"))
    import keras  # type: ignore[import-untyped]

    layer: Any = keras.layers.MultiHeadAttention(HEADS, DIM // HEADS)
    layer(torch.zeros(1, 2, DIM), torch.zeros(1, 2, DIM))  # its parameters are made by the first call
    return layer, lambda x: layer(x, x, training=layer.training)


def x_transformers_layer(flash: bool) -> Layer:
    from x_transformers.x_transformers import Attention  # type: ignore[import-untyped]

    layer = Attention(DIM, dim_head=DIM // HEADS, heads=HEADS, flash=flash)

    def call(x: Tensor) -> Tensor:
        out = layer(x)
        return out if isinstance(out, Tensor) else out[0]

    return layer, call


def transformers_layer() -> Layer:
    """BertSelfAttention with its output projection, without the residual sum and norm."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertSelfAttention

    config = BertConfig(hidden_size=DIM, num_attention_heads=HEADS, attention_probs_dropout_prob=0.0)
    config._attn_implementation = "sdpa"
    attention, dense = BertSelfAttention(config), nn.Linear(DIM, DIM)
    return nn.ModuleList([attention, dense]), lambda x: dense(attention(x)[0])


# name: its constructor, and whether regard must be faster
PEERS: dict[str, tuple[Callable[[], Layer], bool]] = {
    "torch nn.MultiheadAttention": (torch_layer, True),
    "keras MultiHeadAttention": (keras_layer, True),
    "x-transformers Attention": (lambda: x_transformers_layer(False), True),
    "x-transformers Attention(flash=True)": (lambda: x_transformers_layer(True), False),
    "transformers BertSelfAttention (sdpa)": (transformers_layer, True),
}


def self_attention(effort: Effort) -> Iterator[Row]:
    """self-attention of MultiHead(512, 8), against the lean form and the layers of other libraries"""
    mine, least = "regard.MultiHead", "lean qkv + SDPA + out"
    ours, lean = regard_and_lean()
    layers: dict[str, Layer] = {mine: (ours, ours), least: (lean, lean)}
    missing = {}
    for name, (make, _) in PEERS.items():
        try:
            layers[name] = make()
        except ImportError as error:
            missing[name] = f"{error.name} is not installed: pip install regard[bench]"
    for batch, tokens in ((32, 64), (1, 2048)):
        for training in (True, False):
            case = f"MultiHead(512, 8) ({batch},{tokens}) {'train' if training else 'eval'}"
            x = torch.randn(batch, tokens, DIM, requires_grad=training)
            calls = {name: _call(layer, x, training) for name, layer in layers.items()}
            timed = compare(calls, effort, grad=training, agree=[] if training else [least])
            yield cost(case, timed, mine, least, 1.05)
            for name, (_, ahead) in PEERS.items():
                if name in missing:
                    yield absent(case, f"{mine} : {name}", missing[name])
                else:
                    yield gain(case, timed, mine, name, 1.0 if ahead else None)


def _call(layer: Layer, x: Tensor, training: bool) -> Callable[[], object]:
    module, call = layer
    if not training:
        return lambda: (module.eval(), call(x))[1]
    step = backward(lambda: call(x), [x, *(p for p in module.parameters() if p.requires_grad)])
    return lambda: (module.train(), step())[1]


def decode(effort: Effort) -> Iterator[Row]:
    """sixteen decoding steps after 512 tokens, with a KVCache, against projecting all keys again"""
    ours = regard.MultiHead(DIM, HEADS).eval()
    theirs = nn.MultiheadAttention(DIM, HEADS, batch_first=True).eval()
    x = torch.randn(1, 528, DIM)
    with torch.no_grad():
        start = ours.project_kv(x[:, :512])

    def kept() -> Tensor:
        past, outs = start, []
        for n in range(512, 528):
            step = x[:, n : n + 1]
            past = ours.project_kv(step, past=past)
            outs.append(ours(step, past))
        return torch.cat(outs, dim=1)

    def recomputed() -> Tensor:
        outs = []
        for n in range(512, 528):
            seen = x[:, : n + 1]
            outs.append(theirs(seen[:, -1:], seen, seen, need_weights=False)[0])
        return torch.cat(outs, dim=1)

    mine, other = "regard.MultiHead with KVCache", "torch nn.MultiheadAttention, recomputing"
    timed = compare({mine: kept, other: recomputed}, effort)
    yield gain("16 decoding steps after 512 tokens", timed, mine, other)


def lean_step(layer: regard.MultiHead, x: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Any]:
    """One decoding step in the fewest operations of torch; the cache is two tensors."""
    q, k, v = (
        linear(x).unflatten(-1, (layer.heads, -1)).transpose(1, 2) for linear in (layer.query, layer.key, layer.value)
    )
    if past is not None:
        k, v = (torch.cat(pair, dim=2) for pair in zip(past, (k, v), strict=True))
    return layer.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)), (k, v)


def steps(effort: Effort) -> Iterator[Row]:
    """the loop of docs/guides/memory.md, 64 decoding steps of one sentence, against the leanest loop in torch"""
    mine, lean = "regard.MultiHead.step", "lean loop: three projections, cat, SDPA, out"
    for width, bound in ((64, 1.2), (256, 1.1), (768, 1.05)):
        layer, tokens = regard.MultiHead(width, width // 32).eval(), torch.randn(64, 1, 1, width)

        def loop(step: Callable[..., tuple[Tensor, Any]], tokens: Tensor = tokens) -> Tensor:
            past, outs = None, []
            for token in tokens:
                out, past = step(token, past)
                outs.append(out)
            return torch.cat(outs, dim=1)

        with torch.no_grad():
            computations = {
                mine: functools.partial(loop, layer.step),
                lean: functools.partial(loop, functools.partial(lean_step, layer)),
            }
            timed = compare(computations, effort, agree=[lean], threads=1)
        yield cost(f"64 decoding steps, {width} wide", timed, mine, lean, bound)


def _attention(**terms: Any) -> dict[str, Any]:
    return {"attention": regard.Attention(**terms)}


# name: the parts of MultiHead(512, 8), and the most times that its training step may take of a plain one
WIDTH = DIM // HEADS
PARTS: dict[str, tuple[Callable[[], dict[str, Any]], float | None]] = {
    "sink": (lambda: _attention(normalize=WithNullSlot(score=regard.Learnable(0.0, heads=HEADS))), 1.1),
    "soft cap": (lambda: _attention(score=SoftCap(50.0)), 2.0),
    "QK norm (RMS)": (lambda: {"qk_norm": RMSQKNorm(WIDTH)}, 1.15),
    "rotary": (lambda: {"rotate": regard.Rotary(WIDTH)}, None),
    "QK norm and rotary": (lambda: {"qk_norm": RMSQKNorm(WIDTH), "rotate": regard.Rotary(WIDTH)}, None),
    "gate per head": (lambda: {"gate": OutputGate(DIM, HEADS)}, 1.05),
    "gate per channel": (lambda: {"gate": OutputGate(DIM, HEADS, WIDTH)}, 1.2),
    "differential": (lambda: {"difference": Differential(WIDTH)}, None),
    "talking heads": (lambda: _attention(score=TalkingScores(HEADS), normalize=TalkingWeights(HEADS)), None),
    "forget gate": (lambda: {"forget": ForgetGate(DIM, HEADS)}, None),
}
# those whose decoding step is no native kernel
PYTHON_STEPS = ("talking heads", "forget gate")


def _with_parts() -> dict[str, regard.MultiHead]:
    return {"plain": regard.MultiHead(DIM, HEADS)} | {
        name: regard.MultiHead(DIM, HEADS, **make()) for name, (make, _) in PARTS.items()
    }


def parts(effort: Effort) -> Iterator[Row]:
    """a training step of causal MultiHead(512, 8) with parts of today's decoders, against plain heads"""
    x = torch.randn(8, 512, DIM, requires_grad=True)
    calls = {
        name: backward(functools.partial(layer, x, mask=regard.Causal()), [x, *layer.parameters()])
        for name, layer in _with_parts().items()
    }
    timed = compare(calls, effort, grad=True, threads=1)
    for name, (_, bound) in PARTS.items():
        yield cost("causal (8, 512, 512), training step", timed, name, "plain", bound)


def _steps(layers: Mapping[str, regard.MultiHead | Latent]) -> dict[str, Callable[[], Tensor]]:
    """32 decoding steps of each layer after 2,048 tokens, in which its cache grows once."""
    token, calls = torch.randn(1, 1, DIM), {}
    for name, layer in layers.items():
        start = layer.eval().project_kv(torch.randn(1, 2048, DIM))

        def loop(layer: regard.MultiHead | Latent = layer, start: regard.KVCache = start) -> Tensor:
            past: regard.KVCache = start
            for _ in range(32):
                out, past = layer.step(token, past)
            return out

        calls[name] = loop
    return calls


def part_steps(effort: Effort) -> Iterator[Row]:
    """32 decoding steps after 2,048 tokens of MultiHead(512, 8) with the same parts, against plain heads"""
    with torch.no_grad():
        timed = compare(_steps(_with_parts()), effort, threads=1)
    for name in PARTS:
        yield cost("32 steps after 2,048 tokens", timed, name, "plain", None if name in PYTHON_STEPS else 1.2)


def latent_steps(effort: Effort) -> Iterator[Row]:
    """32 decoding steps after 2,048 tokens of Latent(512, 8), absorbed and expanded, against plain heads"""
    sizes = {"latent_dim": 128, "head_dim": WIDTH, "rotated_dim": 32}
    layers: dict[str, regard.MultiHead | Latent] = {"plain": regard.MultiHead(DIM, HEADS)}
    layers |= {form: Latent(DIM, HEADS, form=form, **sizes) for form in ("absorbed", "expanded")}
    with torch.no_grad():
        timed = compare(_steps(layers), effort, threads=1)
    yield cost("32 steps after 2,048 tokens", timed, "absorbed", "plain", None)
    yield gain("32 steps after 2,048 tokens", timed, "absorbed", "expanded", None)


CASES: dict[str, Case] = {
    "self": self_attention,
    "decode": decode,
    "steps": steps,
    "parts": parts,
    "part-steps": part_steps,
    "latent-steps": latent_steps,
}
