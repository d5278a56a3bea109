"""Sentences for bad rotary positions, each with a call that raises it: cases of test_bad_input."""

from collections.abc import Callable

import torch

from regard import MultiHead, Rotary
from regard.positions import (
    AxialSections,
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    LongRoPEScaling,
    MRoPESections,
    NTKScaling,
    ProportionalScaling,
    YaRNScaling,
)

X, STEPS = torch.zeros(3, 8), torch.arange(3)
AXIAL = Rotary(8, axes=AxialSections((2, 2)))

BAD: dict[type[Exception], dict[str, Callable[[], object]]] = {
    TypeError: {
        "scaling must be a RotaryScaling, got 4.0; write scaling=YaRNScaling(": lambda: Rotary(8, scaling=4.0),
        "axes must be a RotaryAxes, got (2, 2); write axes=AxialSections(": lambda: Rotary(8, axes=(2, 2)),
        "share must be a number for ProportionalScaling, got None": lambda: ProportionalScaling(None),
    },
    ValueError: {
        "rotary_dim must be at most the width of a head, 7, got 8; try rotary_dim=6": lambda: Rotary(7, rotary_dim=8),
        "rotary_dim must be even for Rotary, which rotates pairs, got 3; try 4": lambda: Rotary(8, rotary_dim=3),
        "dim must be even for Rotary, which rotates pairs, got 5; try 6": lambda: Rotary(5),
        "'half'; did you mean 'halves'?": lambda: Rotary(4, pairs="half"),
        "base must be positive … Rotary": lambda: Rotary(4, base=0.0),
        "rotate … width 2 … Rotary(4 … try Rotary(2)": lambda: MultiHead(8, 4, rotate=Rotary(4)),
        "sections must add up to the 4 pairs of 8 rotated channels, got (1, 2) … up to 3; try (2, 2)": lambda: Rotary(
            8, axes=MRoPESections((1, 2))
        ),
        "sections must name the pairs of each axis, got none; try MRoPESections((16": lambda: MRoPESections(()),
        "section must be a whole number, 1 or more, for AxialSections, got 0": lambda: AxialSections((0, 4)),
        "grid must have a size for each of 2 sections, got (3,); give as many": lambda: AxialSections((1, 1), (3,)),
        "scaling must be None for AxialSections … got LinearScaling(factor=2.0); use MRoPESections": lambda: Rotary(
            8, scaling=LinearScaling(2.0), axes=AxialSections((2, 2))
        ),
        "positions must be one tensor for each of 2 axes, got those of a sequence; pass": lambda: AXIAL(X),
        "positions must be one tensor for each axis of Rotary(8, … , 2, got 3; give": lambda: AXIAL(X, [STEPS] * 3),
        "positions must be one tensor for each axis of Rotary(8, … , 1, got 2; give": lambda: Rotary(8)(X, [STEPS] * 2),
        "positions on 2 axes rotate queries and keys … no rotation; build MultiHead": lambda: MultiHead(8, 2)(
            X, positions=([STEPS] * 2, [STEPS] * 2)
        ),
        "factor must be positive for LinearScaling, got 0": lambda: LinearScaling(0),
        "factor must be positive for NTKScaling, got -1": lambda: NTKScaling(-1),
        "share must be between 0 and 1 for ProportionalScaling, got 2; try share=0.25": lambda: ProportionalScaling(2),
        "original must be a whole number, 1 or more, for DynamicNTKScaling, got 0": lambda: DynamicNTKScaling(2.0, 0),
        "fast must be more turns than slow for YaRNScaling, got fast=1.0, slow=2.0; try": lambda: YaRNScaling(
            2.0, 8, 1.0, 2.0
        ),
        "attention_factor must be positive for YaRNScaling, got 0": lambda: YaRNScaling(2.0, 8, attention_factor=0),
        "base must be above 1 for YaRNScaling, which counts turns, got 1.0": lambda: Rotary(
            8, base=1.0, scaling=YaRNScaling(2.0, 8)
        ),
        "short and long must have a factor for each of the 3 pairs of 6 rotated channels, got 1 and 1": lambda: Rotary(
            8, rotary_dim=6, scaling=LongRoPEScaling(2.0, 8, (1.0,), (1.0,))
        ),
        "long factors must be positive for LongRoPEScaling, got 0.0": lambda: LongRoPEScaling(2.0, 8, (1.0,), (0.0,)),
        "original must be 2 tokens or more … LongRoPEScaling, got 1; give attention_factor": lambda: LongRoPEScaling(
            2.0, 1, (1.0,), (1.0,)
        ),
        "Llama3Scaling must have 0 < low < high … low=4.0 … try Llama3Scaling(8.0, 1.0, 4.0, 8192)": lambda: (
            Llama3Scaling(8.0, 4.0, 4.0, 64)
        ),
    },
}
