"""GATES: every gate by its name. A factory takes the number of channels and returns a module "b c *s" -> "b c *s".

All are called alike: `gate(x)`, and `gate.attend(x, need=Need(weights=True))` for the weights. Weights broadcast to x;
those of non-local and external attention are a matrix. `dims` is the number of spatial axes: 2 for images.

A name may carry options, `se:reduction=4:normalize=softmax`: the parameters of the constructor of its class.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, Literal, Protocol, get_args, get_origin

from torch import Tensor, nn

from regard.attn.terms.normalizer import Entmax, Identity, Normalizer, Sigmoid, Softmax, Sparsemax
from regard.common import checks
from regard.gates.branches import SelectiveKernel, SplitAttention
from regard.gates.channel import ECA, ChannelGate, GlobalAverage, SqueezeExcite
from regard.gates.channel_spatial import BAM, CBAM, ConcurrentGate, ContextGating, Coordinate, Triplet
from regard.gates.channel_statistics import FCA, GCT, SRM, ContextEncoding, GSoP
from regard.gates.context_blocks import DoubleAttention, DualAttention, GlobalContext, OffsetAttention
from regard.gates.external import ExternalBlock, MultiHeadExternal
from regard.gates.local_context import GatherExcite, GroupEnhance, LargeKernel, StripPooling
from regard.gates.non_local import NonLocal
from regard.gates.parameter_free import MagnitudeSaliency, MaxSaliency, SimAM
from regard.gates.reading_gates import CellGate, HeadsGate, ModuleGate, UnitsGate
from regard.gates.spatial import Spatial, SpatialGate

# gates of the catalogue, public in `regard.gates`
__all__ = [
    "BAM",
    "CBAM",
    "ECA",
    "FCA",
    "GCT",
    "SRM",
    "CellGate",
    "ChannelGate",
    "ConcurrentGate",
    "ContextEncoding",
    "ContextGating",
    "Coordinate",
    "DoubleAttention",
    "DualAttention",
    "ExternalBlock",
    "GSoP",
    "GatherExcite",
    "GlobalAverage",
    "GlobalContext",
    "GroupEnhance",
    "HeadsGate",
    "LargeKernel",
    "MagnitudeSaliency",
    "MaxSaliency",
    "ModuleGate",
    "MultiHeadExternal",
    "NonLocal",
    "OffsetAttention",
    "SelectiveKernel",
    "SimAM",
    "Spatial",
    "SpatialGate",
    "SplitAttention",
    "SqueezeExcite",
    "StripPooling",
    "Triplet",
    "UnitsGate",
]


class GateFactory(Protocol):
    """Builds a gate for maps of `channels` channels and `dims` spatial axes."""

    def __call__(self, channels: int, dims: int = 2) -> nn.Module: ...


def _parts(channels: int) -> int:
    """Eight heads or groups, or fewer if the channels do not split evenly over eight."""
    return next(parts for parts in (8, 4, 2, 1) if channels % parts == 0)


@dataclass(frozen=True)
class CatalogueGate:
    """The factory of a class of gates; the other parameters of its constructor are options behind its name."""

    kind: Callable[..., nn.Module]
    splits_channels: str = ""  # the option that is a number of parts which divides the channels, unless it is given

    @property
    def readers(self) -> dict[str, Callable[[str], Any]]:
        """{option: the function that reads its value from a text}, by the types of the parameters."""
        options = [each for each in signature(self.kind).parameters.values() if each.name not in ("channels", "dims")]
        readers = {option.name: _reader(option.annotation) for option in options}
        return {name: reader for name, reader in readers.items() if reader is not None}

    def __call__(self, channels: int, dims: int = 2, **options: Any) -> nn.Module:
        parameters = signature(self.kind).parameters
        sizes = {"channels": channels, "dims": dims}
        if self.splits_channels:
            options = {self.splits_channels: _parts(channels)} | options
        return self.kind(**{name: size for name, size in sizes.items() if name in parameters}, **options)


def _external_heads(channels: int) -> nn.Module:
    return ExternalBlock(channels, MultiHeadExternal(channels, _parts(channels)))


# the values that have a weight each: {kind: {name: factory}}
GROUPS: dict[str, dict[str, CatalogueGate]] = {
    "channels": {
        "gap": CatalogueGate(GlobalAverage),
        "se": CatalogueGate(SqueezeExcite),
        "eca": CatalogueGate(ECA),
        "channel": CatalogueGate(ChannelGate),
        "gct": CatalogueGate(GCT),
        "srm": CatalogueGate(SRM),
        "fca": CatalogueGate(FCA),
        "gsop": CatalogueGate(GSoP),
        "context-encoding": CatalogueGate(ContextEncoding),
    },
    "positions": {
        "spatial": CatalogueGate(Spatial),
        "spatial-conv": CatalogueGate(SpatialGate),
    },
    "both": {
        "context-gating": CatalogueGate(ContextGating),
        "cbam": CatalogueGate(CBAM),
        "bam": CatalogueGate(BAM),
        "coordinate": CatalogueGate(Coordinate),
        "scse": CatalogueGate(ConcurrentGate),
        "triplet": CatalogueGate(Triplet),
        "strip-pooling": CatalogueGate(StripPooling),
        "group-enhance": CatalogueGate(GroupEnhance, splits_channels="groups"),
        "large-kernel": CatalogueGate(LargeKernel),
        "gated-heads": CatalogueGate(HeadsGate, splits_channels="heads"),
        "gated-units": CatalogueGate(UnitsGate),
        "gated-cell": CatalogueGate(CellGate, splits_channels="heads"),
        "attention-module": CatalogueGate(ModuleGate),
    },
    "every value, without parameters": {
        "simam": CatalogueGate(SimAM),
        "max": CatalogueGate(partial(MaxSaliency, window=2)),
        "magnitude": CatalogueGate(MagnitudeSaliency),
        "gather-excite": CatalogueGate(GatherExcite),
    },
    "pairs of positions": {
        "non-local": CatalogueGate(NonLocal),
        "dual": CatalogueGate(DualAttention),
        "offset": CatalogueGate(OffsetAttention),
    },
    "one context, or a few features, of all positions": {
        "global-context": CatalogueGate(GlobalContext),
        "double": CatalogueGate(DoubleAttention),
    },
    "branches": {
        "selective-kernel": CatalogueGate(SelectiveKernel),
        "split": CatalogueGate(SplitAttention),
    },
    "a memory and positions": {
        "external": CatalogueGate(ExternalBlock),
        "external-heads": CatalogueGate(_external_heads),
    },
}
GATES: dict[str, CatalogueGate] = {name: factory for group in GROUPS.values() for name, factory in group.items()}


# modules that an option may name
MODULES: dict[Any, tuple[str, dict[str, Callable[[], nn.Module]]]] = {
    Callable[[Tensor], Tensor]: (
        "activation",
        {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "none": nn.Identity},
    ),
    Normalizer | None: (
        "normalizer",
        {"sigmoid": Sigmoid, "softmax": Softmax, "sparsemax": Sparsemax, "entmax": Entmax, "none": Identity},
    ),
}


def _reader(annotation: Any) -> Callable[[str], Any] | None:
    """The function that reads a value of this type; None for types that a text cannot name."""
    if annotation in MODULES:
        kind, makers = MODULES[annotation]
        return lambda text: makers[_known(kind, text, makers)]()
    if get_origin(annotation) is Literal:
        return lambda text: _known("value", text, get_args(annotation))
    types = get_args(annotation) or (annotation,)
    return next((_READERS[kind] for kind in types if kind in _READERS), None)


# torch takes no size of more than 19 digits, and no memory holds one of more than these
_MOST_DIGITS = 9


def _whole(text: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) < 1:
        raise ValueError(
            f"a whole number of at least 1, of at most {_MOST_DIGITS} digits, is needed, got {text!r}; try 4"
        )
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"a number is needed, got {text!r}; try 0.1") from None


def _yes_or_no(text: str) -> bool:
    return {"yes": True, "no": False}[_known("value", text, ("yes", "no"))]


def _known(kind: str, text: str, names: Collection[str]) -> str:
    checks.known(kind, text, names)
    return text


_READERS: dict[type, Callable[[str], Any]] = {int: _whole, float: _number, bool: _yes_or_no}


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
    factory = GATES[name]
    readers = factory.readers
    if not readers:
        raise ValueError(f"the gate {name!r} takes no options, got {text!r}; leave them out")
    texts = _option_texts(text, options, readers)

    def values() -> dict[str, Any]:
        return {key: _read_value(text, key, value, readers[key]) for key, value in texts.items()}

    values()  # wrong values are refused here, not when the first gate is built
    # read again per gate: a normalizer is a module, and every gate has its own
    return lambda channels, dims=2: factory(channels, dims, **values())


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
