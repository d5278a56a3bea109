"""Parts of MultiHead by the names of MECHANISMS that add them to plain heads, for any number and width of heads."""

from collections.abc import Callable
from typing import Any

from regard.attn.heads.differential import Differential
from regard.attn.heads.output_gate import OutputGate
from regard.attn.heads.qk_norm import RMSQKNorm
from regard.attn.layer import Attention
from regard.attn.mechanisms.latent import Latent
from regard.attn.terms.learnable import Learnable
from regard.attn.terms.normalizer import WithNullSlot
from regard.attn.terms.rotary import Rotary
from regard.attn.terms.score_bias import Selective
from regard.attn.terms.sequence_masks import Causal
from regard.attn.terms.talking_heads import TalkingScores, TalkingWeights

# factories of terms of Attention and arguments of MultiHead; they take the width of the queries, the number of heads,
# the width of a head and the number of the layer, from 1
NAMED_PARTS: dict[str, Callable[[int, int, int, int], dict[str, Any]]] = {
    "qk-norm": lambda width, heads, dim, layer: {"qk_norm": RMSQKNorm(dim)},
    "output-gate": lambda width, heads, dim, layer: {"gate": OutputGate(width, heads)},
    "sink": lambda width, heads, dim, layer: {"normalize": WithNullSlot(score=Learnable(0.0, heads=heads))},
    "talking-heads": lambda width, heads, dim, layer: {
        "score": TalkingScores(heads),
        "normalize": TalkingWeights(heads),
    },
    "differential": lambda width, heads, dim, layer: {"difference": Differential(dim, layer=layer)},
    "selective": lambda width, heads, dim, layer: {"bias": Selective(heads), "mask": Causal()},
}


def latent_heads(
    query_dim: int, heads: int, dim: int, *, key_dim: int | None = None, rotate: Rotary | None = None
) -> Latent:
    """Latent attention with heads of this width, of which as much again is rotated, from latents of twice the width."""
    return Latent(
        query_dim,
        heads,
        latent_dim=2 * dim,
        head_dim=dim,
        rotated_dim=dim,
        key_dim=key_dim,
        rotate=rotate,
        bias=True,
    )


def head_arguments(name: str, width: int, heads: int, dim: int, layer: int = 1, **terms: Any) -> dict[str, Any]:
    """Arguments of MultiHead for the parts of a name, with other terms of its attention."""
    parts = NAMED_PARTS[name](width, heads, dim, layer)
    terms |= {role: parts.pop(role) for role in ("score", "bias", "mask", "normalize") if role in parts}
    return {"attention": Attention(**terms), **parts}
