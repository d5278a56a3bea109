"""The names of positions that Transformers offer.  No torch here: a command line reads them."""

from typing import Literal

PositionName = Literal[
    "sinusoidal",
    "half-wave",
    "learned",
    "rotary",
    "rotary-partial",
    "rotary-proportional",
    "alibi",
    "kerple",
    "kerple-power",
    "fire",
    "cope",
    "forgetting",
    "t5",
    "shaw",
    "transformer-xl",
    "none",
]
# encodings that have a fixed number of positions
BOUNDED_POSITIONS = ("learned", "half-wave")
