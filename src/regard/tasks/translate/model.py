"""A translator built as a task describes it."""

from regard.data.text.special_tokens import PAD
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer
from regard.tasks.translate.options import Translate


def places(task: Translate) -> int:
    """How far learned positions reach: beyond all that is learned from, as lines to translate may be longer."""
    return 2 * task.max_length + 2


def longest(task: Translate) -> int | None:
    """How many tokens of a sentence the model has places for; None: any number."""
    return places(task) if task.positions == "learned" else None


def build(task: Translate, source_size: int, target_size: int, shared: bool) -> EncoderDecoder:
    """The model, fresh; one vocabulary means one embedding."""
    if task.attention is not None and "hard-argmax" in task.attention.split(","):
        raise ValueError(
            f"attention={task.attention!r} cannot be learned, since no gradient goes through its choice; "
            "try attention='hard', which learns by its rewards, 'gumbel' or 'straight-through'"
        )
    tied = "all" if shared else "target"
    width, dropout = task.choice("width"), task.choice("dropout")
    if task.model == "seq2seq":
        return Seq2Seq(
            source_size,
            target_size,
            width=width,
            hidden=task.choice("hidden"),
            layers=task.layers or 1,
            cell=task.cell or "gru",
            decoder=task.decoder or "bahdanau",
            attention=task.attention,
            dropout=dropout,
            tied=tied,
            padding=PAD,
        )
    names = None if task.attention is None else task.attention.split(",")
    return Transformer(
        source_size,
        target_size,
        width=width,
        layers=task.layers or 3,
        heads=task.heads or 4,
        feed=task.feed or 2 * width,
        norm=task.norm or "pre",
        positions=task.positions or "sinusoidal",
        attention=names[0] if names is not None and len(names) == 1 else names,
        longest=places(task),
        dropout=dropout,
        tied=tied,
        padding=PAD,
    )
