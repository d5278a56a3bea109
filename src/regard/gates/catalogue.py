"""GATES: every gate by its name. A factory takes the number of channels and returns a module "b c *s" -> "b c *s".

All are called alike: `gate(x)`, and `gate.attend(x, need=Need(weights=True))` for the weights. Weights broadcast to x;
those of non-local and external attention are a matrix. `dims` is the number of spatial axes: 2 for images.

A name may carry options, `se:reduction=4:normalize=softmax`, where variants of a gate are in one list.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from torch import nn

from regard.attn.terms.normalizer import Entmax, Sigmoid, Softmax, Sparsemax
from regard.common import checks
from regard.gates.channel import ECA, ChannelGate, GlobalAverage, SqueezeExcite
from regard.gates.channel_spatial import BAM, CBAM, Coordinate
from regard.gates.external import ExternalBlock, MultiHeadExternal
from regard.gates.non_local import NonLocal
from regard.gates.parameter_free import MagnitudeSaliency, MaxSaliency, SimAM
from regard.gates.reading_gates import CellGate, HeadsGate, ModuleGate, UnitsGate
from regard.gates.spatial import Spatial, SpatialGate

# gates of the catalogue, public in `regard.gates`
__all__ = [
    "BAM",
    "CBAM",
    "ECA",
    "CellGate",
    "ChannelGate",
    "Coordinate",
    "ExternalBlock",
    "GlobalAverage",
    "HeadsGate",
    "MagnitudeSaliency",
    "MaxSaliency",
    "ModuleGate",
    "MultiHeadExternal",
    "NonLocal",
    "SimAM",
    "Spatial",
    "SpatialGate",
    "SqueezeExcite",
    "UnitsGate",
]


class GateFactory(Protocol):
    """Builds a gate for maps of `channels` channels and `dims` spatial axes."""

    def __call__(self, channels: int, dims: int = 2) -> nn.Module: ...


def _heads(channels: int) -> int:
    """Eight heads, or fewer if the channels do not split evenly over eight."""
    return next(heads for heads in (8, 4, 2, 1) if channels % heads == 0)


# the values that have a weight each: {kind: {name: factory}}
GROUPS: dict[str, dict[str, GateFactory]] = {
    "channels": {
        "gap": lambda channels, dims=2: GlobalAverage(),
        "se": lambda channels, dims=2: SqueezeExcite(channels),
        "eca": lambda channels, dims=2: ECA(channels),
        "channel": lambda channels, dims=2: ChannelGate(channels),
    },
    "positions": {
        "spatial": lambda channels, dims=2: Spatial(channels),
        "spatial-conv": lambda channels, dims=2: SpatialGate(dims=dims),
    },
    "both": {
        "cbam": lambda channels, dims=2: CBAM(channels, dims=dims),
        "bam": lambda channels, dims=2: BAM(channels, dims=dims),
        "coordinate": lambda channels, dims=2: Coordinate(channels, dims=dims),
        "gated-heads": lambda channels, dims=2: HeadsGate(channels, _heads(channels)),
        "gated-units": lambda channels, dims=2: UnitsGate(channels),
        "gated-cell": lambda channels, dims=2: CellGate(channels, _heads(channels)),
        "attention-module": lambda channels, dims=2: ModuleGate(channels),
    },
    "every value, without parameters": {
        "simam": lambda channels, dims=2: SimAM(),
        "max": lambda channels, dims=2: MaxSaliency(2),
        "magnitude": lambda channels, dims=2: MagnitudeSaliency(),
    },
    "pairs of positions": {
        "non-local": lambda channels, dims=2: NonLocal(channels),
    },
    "a memory and positions": {
        "external": lambda channels, dims=2: ExternalBlock(channels),
        "external-heads": lambda channels, dims=2: ExternalBlock(
            channels, MultiHeadExternal(channels, _heads(channels))
        ),
    },
}
GATES: dict[str, GateFactory] = {name: factory for group in GROUPS.values() for name, factory in group.items()}


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "none": nn.Identity,
}
NORMALIZERS: dict[str, Callable[[], nn.Module]] = {
    "sigmoid": Sigmoid,
    "softmax": Softmax,
    "sparsemax": Sparsemax,
    "entmax": Entmax,
}


class ConfigurableGate(NamedTuple):
    """A gate that takes options after its name: `make(channels, dims, options)` gets their values."""

    make: Callable[[int, int, dict[str, Any]], nn.Module]
    readers: Mapping[str, Callable[[str], Any]]  # the value of an option from its text


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"a whole number of at least 1 is needed, got {text!r}; try 4")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"a number is needed, got {text!r}; try 0.1") from None


def _named(kind: str, makers: Mapping[str, Callable[[], nn.Module]]) -> Callable[[str], nn.Module]:
    def read(text: str) -> nn.Module:
        checks.known(kind, text, makers)
        return makers[text]()

    return read


CONFIGURABLE: dict[str, ConfigurableGate] = {
    "se": ConfigurableGate(
        lambda channels, dims, options: SqueezeExcite(channels, **options),
        {"reduction": _whole, "hidden": _whole, "activation": _named("activation", ACTIVATIONS)}
        | {"normalize": _named("normalizer", NORMALIZERS)},
    ),
    "eca": ConfigurableGate(lambda channels, dims, options: ECA(channels, **options), {"kernel": _whole}),
    "channel": ConfigurableGate(
        lambda channels, dims, options: ChannelGate(channels, **options), {"reduction": _whole}
    ),
    "spatial-conv": ConfigurableGate(
        lambda channels, dims, options: SpatialGate(dims=dims, **options), {"kernel": _whole}
    ),
    "cbam": ConfigurableGate(
        lambda channels, dims, options: CBAM(channels, dims=dims, **options), {"reduction": _whole, "kernel": _whole}
    ),
    "bam": ConfigurableGate(
        lambda channels, dims, options: BAM(channels, dims=dims, **options), {"reduction": _whole, "dilation": _whole}
    ),
    "simam": ConfigurableGate(lambda channels, dims, options: SimAM(**options), {"lam": _number}),
}


def optional_gate(gate: str | Callable[[int], nn.Module] | None, dims: int = 2) -> Callable[[int], nn.Module] | None:
    """The factory of a gate by its name, which options may follow, for so many axes of positions; "none" is None.

    A factory stays as it is.
    """
    if gate is None or gate == "none":
        return None
    if not isinstance(gate, str):
        return gate
    checks.known("gate", gate.partition(":")[0], ["none", *GATES])
    return partial(gate_factory(gate), dims=dims)


def gate_factory(text: str) -> GateFactory:
    """The factory of `NAME` or `NAME:option=value:option=value`, with NAME in `GATES`."""
    name, *options = text.split(":") if isinstance(text, str) else [text]
    checks.known("gate", name, GATES)
    if not options:
        return GATES[name]
    if name not in CONFIGURABLE:
        raise ValueError(
            f"the gate {name!r} takes no options, got {text!r}; leave them out, or use {', '.join(CONFIGURABLE)}"
        )
    make, readers = CONFIGURABLE[name]
    texts = _option_texts(text, options, readers)

    def values() -> dict[str, Any]:
        return {key: _read_value(text, key, value, readers[key]) for key, value in texts.items()}

    values()  # wrong values are refused here, not when the first gate is built
    # read again per gate: a normalizer is a module, and every gate has its own
    return lambda channels, dims=2: make(channels, dims, values())


def _option_texts(text: str, options: Sequence[str], readers: Mapping[str, Any]) -> dict[str, str]:
    """{option: its value as written}; raises for what is no option, and for one that is there twice."""
    texts: dict[str, str] = {}
    for option in options:
        key, equals, value = option.partition("=")
        checks.known(f"option of {text!r},", key, readers)
        if not equals:
            raise ValueError(f"options of a gate are option=value, got {option!r} in {text!r}; try {option}=VALUE")
        if key in texts:
            raise ValueError(f"{text!r} gives {key} twice; give it once")
        texts[key] = value
    return texts


def _read_value(text: str, key: str, value: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise ValueError(f"{key} of {text!r}: {error}") from None


def gate(name: str, channels: int, dims: int = 2) -> nn.Module:
    """The gate of that name in `GATES`, for maps of `channels` channels and `dims` spatial axes.

    Options follow the name: `gate("se:reduction=4", 64)`.
    """
    return gate_factory(name)(channels, dims)
