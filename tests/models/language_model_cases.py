"""Small language models of every kind, for the laws that all of them keep."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from tests.models.cases import HEADS
from torch import nn

from regard import Attention, Learnable, MultiHead, Rotary
from regard.layers import Differential, ForgetGate, L2QKNorm, OutputGate, WholeRMSQKNorm
from regard.layers.position_choices import POSITIONS
from regard.layers.transformer import EncoderLayer
from regard.models import GPT2, Gemma3, GPTNeoX, Llama, Phi3, Qwen3, RecurrentLanguageModel, TransformerXL
from regard.models.decoders.causal_decoder import CausalDecoder
from regard.normalizers import TalkingWeights, WithNullSlot
from regard.positions import YaRNScaling
from regard.scores import SoftCap, TalkingScores

# sizes that share no factor: a swapped axis must fail
B, T, V = 3, 7, 19

Make = Callable[[], Any]
SIZES = {"width": 12, "heads": 3, "layers": 2, "feed": 10, "dropout": 0.0}


def gpt2(**choices: Any) -> Make:
    return functools.partial(GPT2, V, **{**SIZES, "longest": 29, **choices})


def xl(**choices: Any) -> Make:
    return functools.partial(TransformerXL, V, **{**SIZES, "memory": 11, **choices})


def llama(**choices: Any) -> Make:
    return functools.partial(Llama, V, **{**SIZES, **choices})


def recurrent(**choices: Any) -> Make:
    return functools.partial(RecurrentLanguageModel, V, **{"width": 10, "hidden": 9, "dropout": 0.0, **choices})


def with_parts(parts: Callable[[], dict[str, Any]], heads: int = 4, kv_heads: int = 2, **choices: Any) -> Make:
    """A decoder whose heads have these parts."""

    def layer() -> EncoderLayer:
        attention = MultiHead(12, heads, kv_heads=kv_heads, head_dim=4, **parts())
        return EncoderLayer(12, 10, attention, residual="pre", dropout=0.0)

    return lambda: CausalDecoder(V, [layer(), layer()], nn.LayerNorm(12), **choices)


def sinks() -> Attention:
    return Attention(SoftCap(3.0), normalize=WithNullSlot(score=Learnable(0.0, heads=4)))


PARTS: dict[str, Make] = {
    "norms, gates, sinks": with_parts(
        lambda: {"qk_norm": L2QKNorm(3.0), "gate": OutputGate(12, 4), "rotate": Rotary(4), "attention": sinks()}
    ),
    "differential": with_parts(lambda: {"difference": Differential(4, layer=2), "gate": OutputGate(12, 2, 8)}),
    "forgetting": with_parts(lambda: {"forget": ForgetGate(12, 2), "qk_norm": WholeRMSQKNorm(16, 8)}),
    "talking": with_parts(lambda: {"attention": Attention(TalkingScores(4), normalize=TalkingWeights(4))}),
}
WITHOUT_MEMORY: dict[str, Make] = {f"gpt2, {name}": gpt2(positions=name) for name in POSITIONS}
WITHOUT_MEMORY |= PARTS
WITHOUT_MEMORY |= {f"gpt2, {name} heads": gpt2(attention=name, layers=1) for name in HEADS}
WITHOUT_MEMORY |= {
    "gpt2, a list, rotary": gpt2(attention=["dot", "sparsemax", "null"], positions="rotary"),
    "gpt2, additive, relative": gpt2(attention="additive", positions="transformer-xl"),
    "gpt2, selective, rotary": gpt2(attention="selective", positions="rotary"),
    "gpt2, entmax, alibi": gpt2(attention="entmax", positions="alibi"),
    "llama, grouped": llama(kv_heads=1, head_dim=6),
    "llama, yarn": llama(rotate=Rotary(4, scaling=YaRNScaling(4.0, 5, 2.0, 0.5))),
    "qwen3": functools.partial(Qwen3, V, **SIZES, kv_heads=1, head_dim=6),
    "phi3": functools.partial(Phi3, V, **SIZES, rotate=Rotary(4, rotary_dim=2)),
    "gemma3": functools.partial(Gemma3, V, **{**SIZES, "layers": 3}, windows=[3, None, 2], scale=0.4),
    "gpt-neox": functools.partial(GPTNeoX, V, **SIZES),
    "llama, biases, tied": llama(bias=True, feed_bias=True, tied=True, attention="additive"),
}
WITH_MEMORY: dict[str, Make] = {
    "gpt2, memory": gpt2(memory=11),
    "gpt2, memory, rotary": gpt2(memory=11, positions="rotary"),
    "gpt2, memory, t5, same length": gpt2(memory=9, positions="t5", same_length=True),
    "llama, window": llama(window=8),
    "forgetting, window": with_parts(lambda: {"forget": ForgetGate(12, 1)}, 3, 1, window=8),
    "xl": xl(),
    "xl, pre-norm": xl(norm="pre", shared_uv=False),
    "xl, clamp, same length": xl(clamp=3, same_length=True),
    "xl, adaptive": xl(cutoffs=[5, 11], div=2),
    "xl, entmax": xl(attention="entmax"),
}
RECURRENT: dict[str, Make] = {
    "recurrent": recurrent(),
    "recurrent, entmax, gru": recurrent(attention="entmax", cell="gru", layers=2, memory=3),
    "recurrent, none": recurrent(attention="none"),
}
ALL: dict[str, Make] = {**WITHOUT_MEMORY, **WITH_MEMORY, **RECURRENT}


def built(make: Make) -> Any:
    """With large weights and biases that are not zero: what is lost must be missed."""
    torch.manual_seed(1)
    model = make()
    for key, p in model.named_parameters():
        if "norm" in key:
            nn.init.normal_(p, mean=1.0, std=0.3)
        elif "attention.attention" not in key or ".bias." in key:
            nn.init.normal_(p, std=0.4)
    return model


def texts() -> torch.Tensor:
    return torch.randint(0, V, (B, T), generator=torch.Generator().manual_seed(2))
