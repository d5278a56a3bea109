"""Positions of Transformers by name: added to the embeddings or to the scores, or a rotation of queries and keys."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

from torch import Tensor, nn

from regard.attn.heads.forget_gate import ForgetGate
from regard.attn.heads.named_parts import latent_heads
from regard.attn.mechanisms.latent import Latent
from regard.attn.multihead import MultiHead
from regard.attn.terms.bias import FIRE, ALiBi, Bias, KerpleLog, KerplePower, RelativeXL, Shaw, T5Buckets
from regard.attn.terms.position import HalfWave, LearnedPositions, Sinusoidal
from regard.attn.terms.rotary import Rotary
from regard.attn.terms.rotary_scaling import ProportionalScaling
from regard.attn.terms.score_bias import CoPE
from regard.common import checks
from regard.common.options.checks import check_even_heads
from regard.common.position_names import BOUNDED_POSITIONS, PositionName
from regard.layers.head_attention import head_parts

# factories that take the length of the longest text and the width
ADDED: dict[str, Callable[[int, int], nn.Module]] = {
    "learned": LearnedPositions,
    "sinusoidal": lambda longest, width: Sinusoidal(width),
    "half-wave": lambda longest, width: HalfWave(width, longest),
}
# factories that take the width, the number of heads and whether every query stands behind its keys
BIASES: dict[str, Callable[[int, int, bool], Bias]] = {
    "transformer-xl": lambda width, heads, causal: RelativeXL(width, heads, width // heads),
    "shaw": lambda width, heads, causal: Shaw(width // heads),
    "alibi": lambda width, heads, causal: ALiBi(heads),
    "kerple": lambda width, heads, causal: KerpleLog(heads),
    "kerple-power": lambda width, heads, causal: KerplePower(heads),
    "fire": lambda width, heads, causal: FIRE(heads),
    "cope": lambda width, heads, causal: CoPE(width // heads),
    "t5": lambda width, heads, causal: T5Buckets(heads, bidirectional=not causal),
}
# factories that take the width of a head; scalings for longer texts are for models that were trained before
ROTATIONS: dict[str, Callable[[int], Rotary]] = {
    "rotary": Rotary,
    "rotary-partial": lambda dim: Rotary(dim, rotary_dim=max(dim // 4 * 2, 2)),
    "rotary-proportional": lambda dim: Rotary(dim, scaling=ProportionalScaling(0.5)),
}
POSITIONS: tuple[str, ...] = get_args(PositionName)


@dataclass(frozen=True)
class PositionChoice:
    """The parts that one name of POSITIONS gives to a stack of layers."""

    name: str
    width: int
    heads: int
    longest: int
    causal: bool
    owner: str  # the model, for errors

    def __post_init__(self) -> None:
        checks.known("positions", self.name, POSITIONS)
        checks.positive_ints(self.owner, longest=self.longest)
        check_heads(self.owner, self.width, self.heads)
        dim = self.width // self.heads
        if self.name in ROTATIONS and dim % 2:
            raise ValueError(
                f"positions={self.name!r} rotate pairs, so width must be an even number per head, got "
                f"width={self.width} and heads={self.heads}, {dim} per head; try width={self.width + self.heads}"
            )

    def added(self) -> nn.Module | None:
        """The layer that adds them to the embeddings, if they are added there."""
        return ADDED[self.name](self.longest, self.width) if self.name in ADDED else None

    def multi_head(self, attention: str | Sequence[str] | None, layer: int) -> MultiHead | Latent:
        """The self-attention of layer number `layer`, from 1, to whose scores, queries and keys they may be added;
        `attention` is that of `head_parts`."""
        dim = self.width // self.heads
        if attention == "latent":
            if self.name not in ROTATIONS:
                raise ValueError(
                    f"attention='latent' rotates a part of its keys by their positions, got positions={self.name!r}; "
                    "give positions='rotary'"
                )
            return latent_heads(self.width, self.heads, dim, rotate=ROTATIONS[self.name](dim))
        bias = BIASES[self.name](self.width, self.heads, self.causal) if self.name in BIASES else None
        rotate = ROTATIONS[self.name](dim) if self.name in ROTATIONS else None
        forget = ForgetGate(self.width, self.heads) if self.name == "forgetting" else None
        return MultiHead(
            self.width,
            self.heads,
            rotate=rotate,
            forget=forget,
            **head_parts(attention, self.width, self.heads, dim, bias, layer),
        )

    @property
    def bound(self) -> int | None:
        """The number of positions, if it is limited: that of a table, or of a half wave."""
        return self.longest if self.name in BOUNDED_POSITIONS else None

    def check_length(self, tokens: int, text: str = "text") -> None:
        """Raises if a text has more tokens than there are positions."""
        if self.bound is not None and tokens > self.bound:
            raise ValueError(
                f"the {text} has {tokens} tokens, but {self.owner} has {self.longest} {self.name} positions; "
                f"shorten it to {self.longest} tokens, or build the model with longest={tokens} or other positions"
            )

    def add(self, layer: nn.Module | None, x: Tensor, positions: Tensor) -> Tensor:  # "b t d", "t" or "b t"
        """x with the positions that `layer`, made by `added`, adds to it."""
        if layer is None:
            return x
        if self.bound is not None and positions.numel():
            self.check_length(int(positions.max()) + 1)
        return layer(x, positions)


def check_heads(owner: str, width: int, heads: int) -> None:
    """Raises unless the width splits evenly over the heads."""
    checks.positive_ints(owner, width=width, heads=heads)
    check_even_heads(width, heads)
