"""Small translators of every kind, for the laws that all of them keep."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard import MECHANISMS, Attention
from regard.models import NTM, ConvSeq2Seq, PointerNetwork, Seq2Seq, Transformer, UniversalTransformer
from regard.models.encoder_decoder import EncoderDecoder

# sizes that share no factor: a swapped axis must fail
B, S, T, SOURCE, TARGET = 3, 7, 5, 17, 19
LENGTHS = torch.tensor([4, 7, 1])

# of the catalogue, what a head can be: one equation, no draws to learn by, no place that is a number in memory
HEADS = [n for n, make in MECHANISMS.items() if isinstance(make(8, 8), Attention) and n not in ("hard", "location")]

Make = Callable[[], EncoderDecoder]


def seq2seq(**choices: Any) -> Make:
    return functools.partial(Seq2Seq, SOURCE, TARGET, **{"width": 6, "hidden": 10, "dropout": 0.0, **choices})


def transformer(**choices: Any) -> Make:
    sizes = {"width": 12, "heads": 3, "layers": 2, "feed": 10, "longest": 23, "dropout": 0.0}
    return functools.partial(Transformer, SOURCE, TARGET, **{**sizes, **choices})


def conv(**choices: Any) -> Make:
    sizes = {"width": 6, "hidden": 10, "layers": 2, "kernel": 3, "longest": 23, "dropout": 0.0}
    return functools.partial(ConvSeq2Seq, SOURCE, TARGET, **{**sizes, **choices})


def ntm(**choices: Any) -> Make:
    sizes = {"width": 6, "hidden": 10, "locations": 11, "memory_width": 5, "dropout": 0.0}
    return functools.partial(NTM, SOURCE, TARGET, **{**sizes, **choices})


def pointer(**choices: Any) -> Make:
    # source and target have one vocabulary
    return functools.partial(PointerNetwork, TARGET, **{"width": 6, "hidden": 10, "dropout": 0.0, **choices})


def universal(**choices: Any) -> Make:
    sizes = {"width": 12, "heads": 3, "feed": 10, "max_steps": 4, "dropout": 0.0}
    return functools.partial(UniversalTransformer, SOURCE, TARGET, **{**sizes, **choices})


SEQ2SEQ: dict[str, Make] = {
    decoder: seq2seq(decoder=decoder)
    for decoder in ("fixed", "initial", "per-position", "bahdanau", "luong", "luong-feeding")
}
SEQ2SEQ |= {
    "lstm, 3 layers": seq2seq(cell="lstm", layers=3, decoder="luong-feeding"),
    "rnn": seq2seq(cell="rnn", layers=2),
    "rnn, initial": seq2seq(cell="rnn", decoder="initial"),
    "one way": seq2seq(bidirectional=False, encoder_hidden=7),
    "heads": seq2seq(attention="multi-head"),
    "a factory": seq2seq(attention=MECHANISMS["sparsemax"]),
}
TRANSFORMERS: dict[str, Make] = {
    f"{norm}, {positions}": transformer(norm=norm, positions=positions, width=12 if positions != "rotary" else 6)
    for norm in ("pre", "post")
    for positions in ("sinusoidal", "learned", "rotary")
}
TRANSFORMERS |= {
    name: transformer(positions=name, layers=1)
    for name in ("half-wave", "alibi", "t5", "shaw", "transformer-xl", "none", "kerple", "fire", "cope", "forgetting")
}
TRANSFORMERS |= {f"{name} heads": transformer(attention=name, layers=1) for name in HEADS}
TRANSFORMERS |= {
    "a list": transformer(attention=["additive", "entmax", "window"]),
    "a list, rotary": transformer(attention=["dot", "sparsemax", "null"], positions="rotary"),
    "entmax, rotary, post": transformer(attention="entmax", positions="rotary", norm="post"),
    "window, learned, post": transformer(attention="window", positions="learned", norm="post"),
    "additive, learned": transformer(attention="additive", positions="learned"),
    "silu, uneven sides, no scale": transformer(activation=nn.functional.silu, layers=3, decoder_layers=1, scale=1.0),
}
CONV: dict[str, Make] = {
    "conv": conv(),
    "conv, sinusoidal, uneven sides": conv(positions="sinusoidal", layers=3, decoder_layers=1, kernel=5),
    "conv, kernel 1": conv(kernel=1, layers=1),
    "conv, heads": conv(attention="multi-head", width=8),
    "conv, location-sensitive": conv(attention="location-sensitive"),
    "conv, key-value": conv(attention="key-value"),
}
NTMS: dict[str, Make] = {
    "ntm": ntm(),
    "ntm, feed-forward": ntm(controller="feed-forward", layers=2),
    "ntm, many heads": ntm(read_heads=3, write_heads=2, reach=2, layers=2),
    "ntm, token before": ntm(decoder_input="previous"),
}
POINTERS: dict[str, Make] = {
    "pointer": pointer(),
    "pointer, lstm, 2 layers": pointer(cell="lstm", layers=2),
    "pointer, window": pointer(attention="window"),
}
UNIVERSAL: dict[str, Make] = {
    "universal": universal(),
    "universal, pre": universal(norm="pre"),
    "universal, fixed": universal(halting="fixed", max_steps=3),
    "universal, entmax": universal(attention="entmax"),
}
ALL: dict[str, Make] = {**SEQ2SEQ, **TRANSFORMERS, **CONV, **NTMS, **POINTERS, **UNIVERSAL}


def built(make: Make) -> EncoderDecoder:
    """With biases that are not zero: one that is lost must be missed."""
    torch.manual_seed(1)
    model = make()
    for key, p in model.named_parameters():
        if key.endswith("bias"):
            nn.init.normal_(p, std=0.3)
    return model


def given() -> tuple[Tensor, Tensor, Tensor]:
    """Source with padding, lengths, target."""
    torch.manual_seed(2)
    source = torch.randint(3, SOURCE, (B, S)).masked_fill(torch.arange(S) >= LENGTHS[:, None], 0)
    return source, LENGTHS, torch.randint(3, TARGET, (B, T))
