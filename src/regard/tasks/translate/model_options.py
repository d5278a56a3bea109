"""The options of the models of translate.  No torch here: a command line reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from regard.common.options.fields import at_least, left_open, resolve, share
from regard.common.position_names import BOUNDED_POSITIONS, PositionName
from regard.tasks.base import ModelOptions
from regard.tasks.shared.text_options import check_learnable

# decoders that attend, by the name of their paper, and the attention that they have there
SCORED = {"bahdanau": "additive", "luong": "general", "luong-feeding": "general"}


@dataclass(frozen=True)
class TranslatorOptions(ModelOptions):
    """Options that all models have."""

    attention: str | None = left_open("that of the paper")
    """A mechanism by name (see `regard list`)."""
    width: int = at_least(1)
    """The width of embeddings, and of a Transformer's layers."""
    dropout: float = share()
    """The share of activations that dropout sets to zero in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention == "none":
            raise ValueError(
                "attention='none' is written decoder='fixed' (--decoder fixed): a decoder that does not attend"
            )
        if self.attention in SCORED:
            raise ValueError(
                f"attention={self.attention!r} is a decoder, whose attention is {SCORED[self.attention]!r}; "
                f"give decoder={self.attention!r} and leave attention out"
            )
        check_learnable(self.attention)

    def build(self, source_size: int, target_size: int, *, shared: bool, max_length: int) -> Any:
        """The model for vocabularies of these sizes; one vocabulary (`shared`) means one embedding."""
        positions = {"longest": _positions(max_length)} if hasattr(self, "positions") else {}
        return super().build(source_size, target_size, tied="all" if shared else "target", **positions)

    @property
    def attends(self) -> bool:
        """Whether target tokens attend to the source."""
        return True

    @property
    def samples_change_states(self) -> bool:
        """Whether a sample of hard attention changes later steps, since states carry the context."""
        return True

    def max_tokens(self, max_length: int) -> int | None:
        """The longest sentence, in tokens, that the model has positions for; None if there is no limit."""
        return _positions(max_length) if getattr(self, "positions", None) in BOUNDED_POSITIONS else None


@dataclass(frozen=True)
class Seq2SeqOptions(TranslatorOptions):
    """A recurrent encoder and a recurrent decoder."""

    model_class: ClassVar[str] = "regard.models.seq2seq:Seq2Seq"

    decoder: Literal["bahdanau", "luong", "luong-feeding", "fixed", "initial", "per-position"] = "bahdanau"
    """Attend before the step (bahdanau), after it (luong), with input feeding; or never: the source's summary at every
    step (fixed) or as the first state (initial), or one output per source position (per-position)."""
    cell: Literal["gru", "lstm", "rnn"] = "gru"
    """The recurrent cell."""
    layers: int = at_least(1, 1)
    """Layers of the encoder and of the decoder."""
    hidden: int = at_least(1)
    """The width of the recurrent state; an encoder of two directions has half of it in each."""
    bidirectional: bool = left_open("True, but False with decoder initial or per-position")
    """Whether the encoder also reads backward; if not, its state at a position depends on the past alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.attends and self.attention is not None:
            raise ValueError(
                f"attention={self.attention!r} has no place in decoder={self.decoder!r}, which does not attend; leave "
                "one out"
            )
        _check_no_heads(self.attention, "seq2seq")
        both = self.decoder not in ("initial", "per-position")
        resolve(self, {"attention": SCORED.get(self.decoder), "bidirectional": both})

    @property
    def attends(self) -> bool:
        return self.decoder in SCORED

    @property
    def samples_change_states(self) -> bool:
        return self.decoder != "luong"


@dataclass(frozen=True)
class TransformerOptions(TranslatorOptions):
    """An encoder and a decoder of attention layers."""

    model_class: ClassVar[str] = "regard.models.transformer:Transformer"

    attention: str | None = "scaled-dot"
    """A mechanism by name (see `regard list`), or one per head: dot,entmax,…"""
    layers: int = at_least(1, 3)
    """Layers of the encoder and of the decoder."""
    heads: int = at_least(1, 4, divides="width")
    """Heads of every attention."""
    feed: int = left_open("twice the width", minimum=1)
    """The width inside the feed-forward layers."""
    norm: Literal["pre", "post"] = "pre"
    """Layer norms before or after each sublayer."""
    positions: PositionName = "sinusoidal"
    """Positions in the embeddings, in the scores, or as a rotation of queries and keys."""

    def resolved(self, defaults: Mapping[str, Any]) -> Self:
        options = super().resolved(defaults)
        return options if options.feed is not None else replace(options, feed=2 * options.width)


@dataclass(frozen=True)
class UniversalOptions(TranslatorOptions):
    """An encoder and a decoder of one attention layer each, repeated until each token has halted."""

    model_class: ClassVar[str] = "regard.models.universal.universal_transformer:UniversalTransformer"
    read_by_task: ClassVar[tuple[str, ...]] = ("ponder",)
    training_only: ClassVar[tuple[str, ...]] = ("dropout", "ponder")

    attention: str | None = "scaled-dot"
    """A mechanism by name (see `regard list`), or one per head: dot,entmax,…"""
    heads: int = at_least(1, 4, divides="width")
    """Heads of every attention."""
    feed: int = left_open("twice the width", minimum=1)
    """The width inside the feed-forward layers."""
    norm: Literal["pre", "post"] = "post"
    """Layer norms before or after each sublayer."""
    max_steps: int = at_least(1, 6)
    """Repetitions of the layer, at most."""
    halting: Literal["adaptive", "fixed"] = "adaptive"
    """Each token halts by itself (adaptive), or all take max_steps (fixed)."""
    ponder: float = left_open("0.01; 0 with halting fixed", minimum=0)
    """The weight in the loss of the steps of all tokens, per target token."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.halting == "fixed" and self.ponder:
            raise ValueError(
                f"ponder={self.ponder:g} has no place in halting='fixed', where all tokens take as many steps; leave "
                "it out, or take halting='adaptive'"
            )
        resolve(self, {"ponder": 0.01 if self.halting == "adaptive" else 0.0})

    def resolved(self, defaults: Mapping[str, Any]) -> Self:
        options = super().resolved(defaults)
        return options if options.feed is not None else replace(options, feed=2 * options.width)


@dataclass(frozen=True)
class ConvOptions(TranslatorOptions):
    """An encoder and a decoder of gated convolutions, with attention in every layer of the decoder."""

    model_class: ClassVar[str] = "regard.models.conv.seq2seq:ConvSeq2Seq"

    attention: str | None = "dot"
    """A mechanism by name (see `regard list`)."""
    layers: int = at_least(1, 4)
    """Layers of the encoder and of the decoder."""
    decoder_layers: int = left_open("as many as layers", minimum=1)
    """Layers of the decoder, if not as many."""
    hidden: int = at_least(1)
    """The width of the convolutions."""
    kernel: int = at_least(1, 3)
    """Positions that a convolution reads at once; odd."""
    positions: Literal["learned", "sinusoidal"] = "learned"
    """The encoding of positions."""
    encoder_gradient: float = left_open("1 / (2 layers of the decoder)", minimum=0)
    """In training the gradient of the encoder's outputs is multiplied by this."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_no_heads(self.attention, "conv")

    def resolved(self, defaults: Mapping[str, Any]) -> Self:
        options = super().resolved(defaults)
        layers = options.layers if options.decoder_layers is None else options.decoder_layers
        gradient = 1 / (2 * layers) if options.encoder_gradient is None else options.encoder_gradient
        return replace(options, decoder_layers=layers, encoder_gradient=gradient)


@dataclass(frozen=True)
class NTMOptions(TranslatorOptions):
    """A controller that writes the source into a memory by heads, and reads the target from it."""

    model_class: ClassVar[str] = "regard.models.memory.ntm:NTM"
    read_by_task: ClassVar[tuple[str, ...]] = ("attention",)
    # small steps and many of them: gradients go through every address of a sequence
    task_defaults: ClassVar[dict[str, Any]] = {"batch": 512, "hidden": 100}
    training: ClassVar[dict[str, Any]] = {"lr": 2e-3, "schedule": "constant"}

    controller: Literal["lstm", "feed-forward"] = "lstm"
    """The network that emits the addresses; a feed-forward one remembers by the memory alone."""
    layers: int = at_least(1, 1)
    """Layers of the controller."""
    hidden: int = at_least(1)
    """Units of the controller."""
    locations: int = at_least(1, 64)
    """Locations of the memory; a copy needs one per token."""
    memory_width: int = at_least(1, 20)
    """Numbers at a location."""
    read_heads: int = at_least(1, 1)
    """Heads that read."""
    write_heads: int = at_least(1, 1)
    """Heads that write."""
    reach: int = at_least(0, 1)
    """Locations that a head can move per step, forth or back."""
    decoder_input: Literal["none", "previous"] = "none"
    """The input while the target is emitted: nothing, as in the paper, or the token before."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention is not None:
            raise ValueError(
                f"attention={self.attention!r} has no place in model='ntm', which reads its memory; leave it out, or "
                "take model='seq2seq'"
            )

    @property
    def attends(self) -> bool:
        return False


@dataclass(frozen=True)
class PointerOptions(TranslatorOptions):
    """A recurrent encoder, and a decoder that points at the tokens of the source, each at most once."""

    model_class: ClassVar[str] = "regard.models.pointing.pointer_network:PointerNetwork"
    task_defaults: ClassVar[dict[str, Any]] = {"shared": True, "smoothing": 0.0, "metric": "exact"}

    attention: str | None = "additive"
    """The mechanism whose weights are the pointers, by name (see `regard list`)."""
    layers: int = at_least(1, 1)
    """Layers of the encoder and of the decoder."""
    cell: Literal["gru", "lstm", "rnn"] = "gru"
    """The recurrent cell."""
    hidden: int = at_least(1)
    """The width of the recurrent state; the encoder has half of it in each direction."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_no_heads(self.attention, "pointer network")

    def build(self, source_size: int, target_size: int, *, shared: bool, max_length: int) -> Any:
        # source and target have one vocabulary
        return ModelOptions.build(self, source_size)


def _positions(max_length: int) -> int:
    """The number of learned positions: beyond all training pairs, as lines to translate may be longer."""
    return 2 * max_length + 2


def _check_no_heads(attention: str | None, model: str) -> None:
    if attention is not None and "," in attention:
        raise ValueError(
            f"attention={attention!r} names one per head, and a {model} has no heads; name one, or take "
            "model='transformer'"
        )
