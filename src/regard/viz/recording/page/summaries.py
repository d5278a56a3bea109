"""Maps of a page beside those of the modules: the mean over heads, the rollout of a stack, maps of words."""

import math
from collections.abc import Iterable
from dataclasses import replace

from regard.recording.analysis.derived_maps import HeadMean, HeadStack, derive
from regard.recording.analysis.select import is_encoder
from regard.recording.analysis.words import marks_of
from regard.recording.recorded_map import KINDS, RecordedMap
from regard.recording.recording import Recording
from regard.viz.recording import selection

MEAN, ROLLOUT = "mean over heads", "rollout"
# weights of the maps that a summary reads; of more, a page has none
_MAX_WEIGHTS = 1 << 24


def with_summaries(recording: Recording) -> Recording:
    """The recording with a map per stack of layers whose heads are the layers, each the mean over its heads; and, of
    stacks of self attention, the rollout. Maps that differ in size are no stack.
    """
    stacks: dict[tuple[object, ...], list[RecordedMap]] = {}
    for recorded_map in recording:
        if (
            len(recorded_map.shape) > 3
            and KINDS[recorded_map.kind].has_entropy
            and not selection.is_difference(recorded_map)
        ):
            key = (recorded_map.kind, recorded_map.shape[0], *recorded_map.shape[-2:], _part(recorded_map))
            stacks.setdefault(key, []).append(recorded_map)
    summaries = [summary for maps in stacks.values() for summary in _summaries(maps)]
    return replace(recording, maps=(*recording.maps, *summaries))


def with_words(recording: Recording) -> tuple[Recording, Recording | None]:
    """The recording with its summaries, and the same from word to word where tokens are parts of words."""
    words = merged_words(recording)
    return with_summaries(recording), None if words is None else with_summaries(words)


def merged_words(recording: Recording) -> Recording | None:
    """The recording from word to word; None where tokens are words, or where some maps are not over the tokens."""
    tokens = [*(recording.queries or ()), *(recording.keys or ())]
    if not marks_of(tokens) or sum(math.prod(item.shape) for item in recording) > _MAX_WEIGHTS:
        return None
    try:
        return recording.merge_words()
    except ValueError:
        return None


def is_summary(recorded_map: RecordedMap) -> bool:
    """Whether the map is one that `with_summaries` adds."""
    return recorded_map.name.startswith((MEAN, ROLLOUT)) and " of " in recorded_map.captured_from


def _part(recorded_map: RecordedMap) -> str:
    """The end of a summary's name: the stack of a model that has two."""
    part = "encoder" if is_encoder(recorded_map.name) else "decoder" if "decoder" in recorded_map.name else ""
    return f" of the {part}" if part else ""


def _summaries(maps: list[RecordedMap]) -> Iterable[RecordedMap]:
    first = maps[0]
    is_whole = all(item.rows is None and item.heads is None and not item.step for item in maps)
    if not is_whole or sum(math.prod(item.shape) for item in maps) > _MAX_WEIGHTS:
        return
    end = _part(first) + (", to the source" if first.kind == "cross" else "")
    if any(item.shape[-3] > 1 for item in maps):
        weights = HeadStack(*(HeadMean(item.weights) for item in maps))
        yield derive(MEAN + end, first.kind, weights, maps, "mean over heads")
    if len(maps) > 1 and first.kind == "self" and first.shape[-1] == first.shape[-2]:
        try:
            (rollout,) = Recording(tuple(maps)).rollout()
        except ValueError:
            return  # several passes through one module are no stack
        yield replace(rollout, name=ROLLOUT + end)
