"""Small classifiers of clips and of signals, whose laws are in test_laws.py."""

from collections.abc import Callable

from regard.models.clips.clip_attention import ClipAttention
from regard.models.clips.clip_model import ClipModel
from regard.models.clips.encoders import FrameEncoder, SignalEncoder

CLASSES, CHANNELS = 3, 2


def frames(causal: bool = False, gate: str | None = None, **options: object) -> ClipModel:
    encoder = FrameEncoder(CHANNELS, width=3, depths=(1, 1), causal=causal, gate=_gate(gate, 2))
    return ClipAttention(encoder, CLASSES, **options)  # type: ignore[arg-type]


def signal(causal: bool = False, gate: str | None = None, **options: object) -> ClipModel:
    encoder = SignalEncoder(CHANNELS, width=3, depths=(1, 1, 1), causal=causal, gate=_gate(gate, 1))
    return ClipAttention(encoder, CLASSES, **options)  # type: ignore[arg-type]


def _gate(name: str | None, dims: int) -> Callable[[int], object] | None:
    from regard.gates.catalogue import GATES

    return None if name is None else lambda channels: GATES[name](channels, dims)


CASES: dict[str, Callable[..., ClipModel]] = {"frames": frames, "frames-signal": signal}
