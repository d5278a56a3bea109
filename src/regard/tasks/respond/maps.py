"""The attention behind a reply as two maps over the tokens of a dialogue: its words, and its turns."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor

from regard.attn.maps.attention_map import DenseMap
from regard.recording.analysis.derived_maps import derive
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording

# the modules of HRAN that attend, and of a flat model those of the stack and its pointer
_OF_WORDS, _OF_TURNS, _OF_LAYERS, _OF_POINTER = "word_attention", "turn_attention", "decoder.stack", "pointer"


def label_dialogue(recording: Recording, queries: Sequence[str], turns: Sequence[Sequence[str]]) -> Recording:
    """A map "words" with a column per token of the turns, and a map "turns" with the sum of each turn in the column of
    its end, and of a model with a pointer a map "copied"; where too few modules were recorded to make them, the
    recording as it is.
    """
    lengths = [len(turn) for turn in turns]
    keys = [label for n, turn in enumerate(turns, 1) for label in (*turn[:-1], *([f"turn {n}"] if turn else []))]
    layers = [item for item in recording if item.name.startswith(_OF_LAYERS)]
    pointers = [item for item in recording if item.name.startswith(_OF_POINTER)]
    named = {item.name: item for item in recording}
    if layers:
        sources, words = [*layers, *pointers], _flat_words(layers, pointers, len(queries), lengths)
    elif {_OF_WORDS, _OF_TURNS} <= named.keys():
        sources = [named[_OF_WORDS], named[_OF_TURNS]]
        words = _hierarchical_words(sources[0], sources[1], lengths)
    else:
        return replace(recording, queries=tuple(queries))
    ends = list(accumulate(lengths))
    sums = torch.zeros_like(words)
    for end, length in zip(ends, lengths, strict=True):
        if length:
            sums[:, end - 1] = words[:, end - length : end].sum(1)
    maps = [
        derive(name, "cross", DenseMap(rows[None, None]), sources, name)
        for name, rows in (("words", words), ("turns", sums))
    ]
    maps += [derive("copied", "cross", DenseMap(_pointed(item)[None, None]), [item], "copied") for item in pointers]
    return replace(recording, maps=tuple(maps), queries=tuple(queries), keys=tuple(keys))


def _flat_words(
    layers: Sequence[RecordedMap], pointers: Sequence[RecordedMap], count: int, lengths: Sequence[int]
) -> Tensor:  # -> "t s"
    """The mean over heads, then over layers, of which a pointer is one; the text that was read has no end of the last
    turn, but a begin of the reply.
    """
    read = sum(lengths) - 1
    means = [item.weights.dense()[0].flatten(0, -3).mean(0) for item in layers]  # "n n"
    rows = [torch.nn.functional.pad(mean[read : read + count, :read], (0, 1)) for mean in means]
    return torch.stack([*rows, *map(_pointed, pointers)]).mean(0)


def _pointed(pointer: RecordedMap) -> Tensor:  # -> "t s"
    """The weights of a pointer, which does not read the end of the last turn."""
    return torch.nn.functional.pad(pointer.weights.dense()[0], (0, 1))


def _hierarchical_words(words: RecordedMap, turns: RecordedMap, lengths: Sequence[int]) -> Tensor:  # -> "t s"
    """α_itj β_it; the recorded turns are those with words, the newest first."""
    of_words, of_turns = words.weights.dense(), turns.weights.dense()  # "m *h t w", "1 *h t m"
    of_words = of_words.flatten(1, -3).mean(1) if of_words.ndim > 3 else of_words
    of_turns = of_turns[0].flatten(0, -3).mean(0) if of_turns.ndim > 3 else of_turns[0]
    filled = [length for length in lengths if length]
    parts = [
        of_words[n, :, :length] * of_turns[:, n : n + 1]
        for n, length in zip(range(len(filled)), filled[::-1], strict=True)
    ]
    return torch.cat(parts[::-1], 1)
