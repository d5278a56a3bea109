"""Small classifiers of clips and of signals, whose laws are in test_laws.py."""

from collections.abc import Callable
from functools import partial

from regard.models.clips.clip_attention import ClipAttention
from regard.models.clips.clip_cell import ClipCell
from regard.models.clips.clip_convnet import ClipConvNet
from regard.models.clips.clip_model import ClipModel
from regard.models.clips.encoders import FrameEncoder, SignalEncoder
from regard.models.clips.space_time import SpaceTimeEncoder

CLASSES, CHANNELS, SIZE = 3, 2, (11, 13)


def frames(causal: bool = False, gate: str | None = None, **options: object) -> ClipModel:
    encoder = FrameEncoder(CHANNELS, width=4, depths=(1, 1), causal=causal, gate=_gate(gate, 2))
    return ClipAttention(encoder, CLASSES, **options)  # type: ignore[arg-type]


def signal(causal: bool = False, gate: str | None = None, **options: object) -> ClipModel:
    encoder = SignalEncoder(CHANNELS, width=3, depths=(1, 1, 1), causal=causal, gate=_gate(gate, 1))
    return ClipAttention(encoder, CLASSES, **options)  # type: ignore[arg-type]


def convnet(is_signal: bool = False, causal: bool = False) -> ClipModel:
    return ClipConvNet(CHANNELS, CLASSES, is_signal=is_signal, width=3, depths=(1, 1), causal=causal)


def cell(is_signal: bool = False, causal: bool = False) -> ClipModel:
    make = SignalEncoder if is_signal else FrameEncoder
    encoder = make(CHANNELS, width=3, depths=(1, 1), causal=causal)
    return ClipCell(encoder, CLASSES, heads=2, head_width=5)


def transformer(is_signal: bool = False, causal: bool = False, attention: str | None = None) -> ClipModel:
    encoder = SpaceTimeEncoder(
        CHANNELS,
        None if is_signal else SIZE,
        width=6,
        layers=2,
        heads=3,
        patch=5,
        attention=attention,
        causal=causal,
    )
    return ClipAttention(encoder, CLASSES)


def _gate(name: str | None, dims: int) -> Callable[[int], object] | None:
    from regard.gates.catalogue import GATES

    return None if name is None else lambda channels: GATES[name](channels, dims)


CASES: dict[str, Callable[..., ClipModel]] = {
    "frames": frames,
    "frames-signal": signal,
    **{
        f"{make.__name__}{end}": partial(make, is_signal)
        for make in (convnet, cell, transformer)
        for end, is_signal in (("", False), ("-signal", True))
    },
}
