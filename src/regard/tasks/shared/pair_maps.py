"""Recordings of models that read several texts: the maps between texts as maps over all texts, one behind the other.

  a b c | d e
a       | ▒ █      first -> second
b   0   | █ ▒
c       | ▒ ▒
d █ ▒ ▒ |          second -> first
e ▒ █ ▒ |   0
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, groupby

from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap, DenseMap
from regard.recording.analysis.derived_maps import derive
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording

# the name of a vector that stands before a text, for words without a partner
NULL = "∅"


def joined_recording(recording: Recording, first: Sequence[str], second: Sequence[str]) -> Recording:
    """The recording with both texts at its rows and columns.

    The calls of a module from one text to the other, and those within each text, become one map. Other maps, such as
    those of an encoder that reads both texts as one, stay as they are.
    """
    texts = [list(first), list(second)]
    maps: list[RecordedMap] = []
    for _, calls in groupby(recording, key=lambda item: item.name):
        group = list(calls)
        joined = _joined(group, texts)
        maps += group if joined is None else [joined]
    more = max((item.shape[-1] for item in maps), default=0) - len(first) - len(second)
    if more == len(texts):
        texts = [[NULL, *text] for text in texts]
    names = tuple(token for text in texts for token in text)
    about = {**recording.about, "queries": "tokens", "keys": "tokens"}
    return replace(recording, maps=tuple(maps), queries=names, keys=names, about=about)


def numbered_texts(recording: Recording, first: int, second: int) -> Recording:
    """A joined recording of texts of `first` and `second` tokens, whose tokens have the number of their text."""
    names = recording.queries or ()
    end = first + (len(names) - first - second) // 2  # each text may begin with a null token
    labels = tuple(f"{1 if n < end else 2} {name}" for n, name in enumerate(names))
    about = {**recording.about, "queries": "text, token", "keys": "text, token"}
    return replace(recording, queries=labels, keys=labels, about=about)


def _joined(calls: Sequence[RecordedMap], texts: Sequence[Sequence[str]]) -> RecordedMap | None:
    """The map over all texts of calls between two of them; None if the calls are none of these."""
    if len(calls) != 2:
        return None
    for more in (0, 1):
        n, m = (len(text) + more for text in texts)
        shapes = [call.shape[-2:] for call in calls]
        if calls[0].kind == "cross" and shapes == [(n, m), (m, n)]:
            return block_map(calls, [n, m], {(0, 1): calls[0], (1, 0): calls[1]})
        if calls[0].kind == "self" and shapes == [(n, n), (m, m)]:
            return block_map(calls, [n, m], {(0, 0): calls[0], (1, 1): calls[1]})
    return None


def block_map(
    calls: Sequence[RecordedMap], sizes: Sequence[int], blocks: Mapping[tuple[int, int], RecordedMap]
) -> RecordedMap:
    """One map over texts of these sizes, one behind the other, from maps between text i and text j; others are zero."""
    whole = _block_matrix({places: block.weights for places, block in blocks.items()}, sizes)
    joined = derive(calls[0].name, calls[0].kind, DenseMap(whole), calls, "both texts")
    gradients = {places: block.gradient for places, block in blocks.items() if block.gradient is not None}
    if len(gradients) < len(blocks):
        return joined
    return replace(joined, gradient=DenseMap(_block_matrix(gradients, sizes)))


def _block_matrix(blocks: Mapping[tuple[int, int], AttentionMap], sizes: Sequence[int]) -> Tensor:  # -> "*b n n"
    starts = [0, *accumulate(sizes)]
    dense = {places: block.dense() for places, block in blocks.items()}
    first = next(iter(dense.values()))
    whole: Tensor = first.new_zeros(*first.shape[:-2], starts[-1], starts[-1])
    for (i, j), weights in dense.items():
        whole[..., starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = weights
    return whole
