"""The options of the models of translate.  No torch here: a command line reads them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from regard.common.options.checks import check_at_least, check_choices, check_even_heads, check_share
from regard.common.options.fields import left_open, resolve
from regard.common.position_names import BOUNDED_POSITIONS, PositionName
from regard.tasks.base import ModelOptions
from regard.tasks.shared.text_options import check_learnable

if TYPE_CHECKING:
    from regard.models.encoder_decoder import EncoderDecoder

# decoders that attend, by the name of their paper, and the attention that they have there
SCORED = {"bahdanau": "additive", "luong": "general", "luong-feeding": "general"}


@dataclass(frozen=True)
class TranslatorOptions(ModelOptions):
    """Options that all models have."""

    attention: str | None = left_open("that of the paper")
    """A mechanism by name (see `regard list`)."""
    width: int = left_open()
    """The width of embeddings, and of a Transformer's layers."""
    layers: int = left_open()
    """Layers of the encoder and of the decoder."""
    dropout: float = left_open()
    """The share of activations that dropout sets to zero in training."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_at_least(self, 1, dict.fromkeys(["width", "layers"]))
        check_share(self, {"dropout": 0.1})
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

    @abstractmethod
    def build(self, source_size: int, target_size: int, *, shared: bool, max_length: int) -> EncoderDecoder:
        """The model for vocabularies of these sizes; one vocabulary (`shared`) means one embedding."""

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
        return None


@dataclass(frozen=True)
class Seq2SeqOptions(TranslatorOptions):
    """A recurrent encoder and a recurrent decoder."""

    decoder: Literal["bahdanau", "luong", "luong-feeding", "fixed", "initial", "per-position"] = "bahdanau"
    """Attend before the step (bahdanau), after it (luong), with input feeding; or never: the source's summary at every
    step (fixed) or as the first state (initial), or one output per source position (per-position)."""
    cell: Literal["gru", "lstm", "rnn"] = "gru"
    """The recurrent cell."""
    layers: int = 1
    """Layers of the encoder and of the decoder."""
    hidden: int = left_open()
    """The width of the recurrent state; an encoder has half of it in each direction."""

    def __post_init__(self) -> None:
        resolve(self, {"decoder": "bahdanau", "cell": "gru", "layers": 1})
        super().__post_init__()
        check_at_least(self, 1, {"hidden": None})
        if not self.attends and self.attention is not None:
            raise ValueError(
                f"attention={self.attention!r} has no place in decoder={self.decoder!r}, which does not attend; leave "
                "one out"
            )
        _check_no_heads(self.attention, "seq2seq")
        if self.attention is None and self.decoder in SCORED:
            object.__setattr__(self, "attention", SCORED[self.decoder])

    @property
    def attends(self) -> bool:
        return self.decoder in SCORED

    @property
    def samples_change_states(self) -> bool:
        return self.decoder != "luong"

    def build(self, source_size: int, target_size: int, *, shared: bool, max_length: int) -> EncoderDecoder:
        from regard.data.text.special_tokens import PAD
        from regard.models.seq2seq import Seq2Seq

        return Seq2Seq(
            source_size,
            target_size,
            width=self.width,
            hidden=self.hidden,
            layers=self.layers,
            cell=self.cell,
            decoder=self.decoder,
            attention=self.attention,
            dropout=self.dropout,
            tied="all" if shared else "target",
            padding=PAD,
        )


@dataclass(frozen=True)
class TransformerOptions(TranslatorOptions):
    """An encoder and a decoder of attention layers."""

    attention: str | None = "scaled-dot"
    """A mechanism by name (see `regard list`), or one per head: dot,entmax,…"""
    layers: int = 3
    """Layers of the encoder and of the decoder."""
    heads: int = 4
    """Heads of every attention."""
    feed: int = left_open("twice the width")
    """The width inside the feed-forward layers."""
    norm: Literal["pre", "post"] = "pre"
    """Layer norms before or after each sublayer."""
    positions: PositionName = "sinusoidal"
    """Positions in the embeddings, in the scores, or as a rotation of queries and keys."""

    def __post_init__(self) -> None:
        resolve(self, {"attention": "scaled-dot", "layers": 3, "heads": 4, "norm": "pre", "positions": "sinusoidal"})
        super().__post_init__()
        check_at_least(self, 1, dict.fromkeys(["heads", "feed"]))
        check_even_heads(self.width, self.heads)

    def resolved(self, defaults: Mapping[str, Any]) -> Self:
        options = super().resolved(defaults)
        return options if options.feed is not None else replace(options, feed=2 * options.width)

    def max_tokens(self, max_length: int) -> int | None:
        return _positions(max_length) if self.positions in BOUNDED_POSITIONS else None

    def build(self, source_size: int, target_size: int, *, shared: bool, max_length: int) -> EncoderDecoder:
        from regard.data.text.special_tokens import PAD
        from regard.models.transformer import Transformer

        assert self.attention is not None
        names = self.attention.split(",")
        return Transformer(
            source_size,
            target_size,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            feed=self.feed,
            norm=self.norm,
            positions=self.positions,
            attention=names[0] if len(names) == 1 else names,
            longest=_positions(max_length),
            dropout=self.dropout,
            tied="all" if shared else "target",
            padding=PAD,
        )


@dataclass(frozen=True)
class ConvOptions(TranslatorOptions):
    """An encoder and a decoder of gated convolutions, with attention in every layer of the decoder."""

    attention: str | None = "dot"
    """A mechanism by name (see `regard list`)."""
    layers: int = 4
    """Layers of the encoder and of the decoder."""
    decoder_layers: int = left_open("as many as layers")
    """Layers of the decoder, if not as many."""
    hidden: int = left_open()
    """The width of the convolutions."""
    kernel: int = 3
    """Positions that a convolution reads at once; odd."""
    positions: Literal["learned", "sinusoidal"] = "learned"
    """The encoding of positions."""
    encoder_gradient: float = left_open("1 / (2 layers of the decoder)")
    """In training the gradient of the encoder's outputs is multiplied by this."""

    def __post_init__(self) -> None:
        resolve(self, {"attention": "dot", "layers": 4, "kernel": 3, "positions": "learned"})
        super().__post_init__()
        check_at_least(self, 1, dict.fromkeys(["hidden", "kernel", "decoder_layers"]))
        check_at_least(self, 0, {"encoder_gradient": 0.125})
        _check_no_heads(self.attention, "conv")

    def resolved(self, defaults: Mapping[str, Any]) -> Self:
        options = super().resolved(defaults)
        layers = options.layers if options.decoder_layers is None else options.decoder_layers
        gradient = 1 / (2 * layers) if options.encoder_gradient is None else options.encoder_gradient
        return replace(options, decoder_layers=layers, encoder_gradient=gradient)

    def max_tokens(self, max_length: int) -> int | None:
        return _positions(max_length) if self.positions == "learned" else None

    def build(self, source_size: int, target_size: int, *, shared: bool, max_length: int) -> EncoderDecoder:
        from regard.data.text.special_tokens import PAD
        from regard.models.conv.seq2seq import ConvSeq2Seq

        assert self.attention is not None
        return ConvSeq2Seq(
            source_size,
            target_size,
            width=self.width,
            hidden=self.hidden,
            layers=self.layers,
            decoder_layers=self.decoder_layers,
            kernel=self.kernel,
            attention=self.attention,
            positions=self.positions,
            longest=_positions(max_length),
            encoder_gradient=self.encoder_gradient,
            dropout=self.dropout,
            tied="all" if shared else "target",
            padding=PAD,
        )


@dataclass(frozen=True)
class NTMOptions(TranslatorOptions):
    """A controller that writes the source into a memory by heads, and reads the target from it."""

    # small steps and many of them: gradients go through every address of a sequence
    task_defaults: ClassVar[dict[str, Any]] = {"batch": 512, "hidden": 100}
    training: ClassVar[dict[str, Any]] = {"lr": 2e-3, "schedule": "constant"}

    controller: Literal["lstm", "feed-forward"] = "lstm"
    """The network that emits the addresses; a feed-forward one remembers by the memory alone."""
    layers: int = 1
    """Layers of the controller."""
    hidden: int = left_open()
    """Units of the controller."""
    locations: int = 64
    """Locations of the memory; a copy needs one per token."""
    memory_width: int = 20
    """Numbers at a location."""
    read_heads: int = 1
    """Heads that read."""
    write_heads: int = 1
    """Heads that write."""
    reach: int = 1
    """Locations that a head can move per step, forth or back."""
    decoder_input: Literal["none", "previous"] = "none"
    """The input while the target is emitted: nothing, as in the paper, or the token before."""

    def __post_init__(self) -> None:
        resolve(self, {item.name: item.default for item in fields(self) if item.default is not None})
        super().__post_init__()
        names = ["hidden", "locations", "memory_width", "read_heads", "write_heads"]
        check_at_least(self, 1, dict.fromkeys(names))
        check_at_least(self, 0, {"reach": 1})
        if self.attention is not None:
            raise ValueError(
                f"attention={self.attention!r} has no place in model='ntm', which reads its memory; leave it out, or "
                "take model='seq2seq'"
            )

    @property
    def attends(self) -> bool:
        return False

    def build(self, source_size: int, target_size: int, *, shared: bool, max_length: int) -> EncoderDecoder:
        from regard.data.text.special_tokens import PAD
        from regard.models.memory.ntm import NTM

        return NTM(
            source_size,
            target_size,
            width=self.width,
            hidden=self.hidden,
            layers=self.layers,
            controller=self.controller,
            locations=self.locations,
            memory_width=self.memory_width,
            read_heads=self.read_heads,
            write_heads=self.write_heads,
            reach=self.reach,
            decoder_input=self.decoder_input,
            dropout=self.dropout,
            tied="all" if shared else "target",
            padding=PAD,
        )


def _positions(max_length: int) -> int:
    """The number of learned positions: beyond all training pairs, as lines to translate may be longer."""
    return 2 * max_length + 2


def _check_no_heads(attention: str | None, model: str) -> None:
    if attention is not None and "," in attention:
        raise ValueError(
            f"attention={attention!r} names one per head, and a {model} has no heads; name one, or take "
            "model='transformer'"
        )
