"""Selections of recorded maps by name, kind, call, head and sample; their differences, steps and words."""

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import pairwise

from regard.attn.maps.attention_map import AttentionMap
from regard.common import checks
from regard.recording.analysis.derived_maps import Difference, HeadStack, StitchedMap, derive, stitch_windows
from regard.recording.analysis.words import Words, detect_mark
from regard.recording.recorded_map import KINDS, RecordedMap

Index = int | slice | Sequence[int]


def select_maps(
    maps: Sequence[RecordedMap],
    layers: str | Sequence[str] | None,
    kind: str | Sequence[str] | None,
    calls: Index | None,
) -> tuple[RecordedMap, ...]:
    selected = list(maps)
    if layers is not None:
        names = list(dict.fromkeys(m.name for m in maps))
        patterns = [layers] if isinstance(layers, str) else list(layers)
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                checks.known("layers", pattern, names)
        selected = [m for m in selected if any(fnmatchcase(m.name, pattern) for pattern in patterns)]
    if kind is not None:
        kinds = [kind] if isinstance(kind, str) else list(kind)
        for name in kinds:
            checks.known("kind", name, KINDS)
        selected = [m for m in selected if m.kind in kinds]
    if calls is not None:
        numbers = _indices("calls", calls, max((m.call for m in selected), default=-1) + 1)
        selected = [m for m in selected if m.call in numbers]
    return tuple(selected)


def check_heads(recorded_map: RecordedMap, way_out: str) -> None:
    """Raises for a map without an axis of heads, or with one of several axes that may be it."""
    if len(recorded_map.shape) < 4:
        raise ValueError(
            f"{recorded_map.name!r} has no heads: its map is {recorded_map.shape}, (sample, query, key); {way_out}"
        )
    if len(recorded_map.shape) > 4:
        raise ValueError(
            f"{recorded_map.name!r} has a map of {len(recorded_map.shape)} axes, {recorded_map.shape}, such as heads "
            "and windows of an image in an order that nothing shows; take the axis from weights.dense() instead"
        )


def select_heads(recorded_map: RecordedMap, index: Index) -> RecordedMap:
    check_heads(recorded_map, "leave heads out")
    recorded = list(range(recorded_map.shape[-3])) if recorded_map.heads is None else list(recorded_map.heads)
    if recorded_map.heads is None or isinstance(index, slice):
        indices = _indices("heads", index, len(recorded), recorded_map.name)
    else:
        indices = []
        for head in [index] if isinstance(index, int) else index:
            if head not in recorded:
                numbers = ", ".join(map(str, recorded))
                raise IndexError(f"heads={head} was not recorded of {recorded_map.name!r}; there are {numbers}")
            indices.append(recorded.index(head))
    return replace(
        recorded_map,
        weights=_heads(recorded_map.weights, indices),
        gradient=None if recorded_map.gradient is None else _heads(recorded_map.gradient, indices),
        heads=tuple(recorded[n] for n in indices),
    )


def _heads(weights: AttentionMap, indices: Sequence[int]) -> AttentionMap:
    """Some heads, in that order; evenly spaced ones as one slice."""
    leading = (slice(None),) * (len(weights.shape) - 3)
    if list(indices) == list(range(weights.shape[-3])):
        return weights
    step = indices[1] - indices[0] if len(indices) > 1 else 1
    if step > 0 and all(b - a == step for a, b in pairwise(indices)):
        return weights.pick(*leading, slice(indices[0], indices[-1] + 1, step))
    return HeadStack(*[weights.pick(*leading, slice(h, h + 1)) for h in indices])


def select_sample(recorded_map: RecordedMap, number: int) -> RecordedMap:
    if len(recorded_map.shape) < 3:
        raise ValueError(
            f"{recorded_map.name!r} has no samples: its map is {recorded_map.shape}, (query, key); leave sample out"
        )
    (n,) = _indices("sample", number, recorded_map.shape[0], recorded_map.name)
    if recorded_map.shape[0] == 1:
        return recorded_map
    pick = slice(n, n + 1)
    return replace(
        recorded_map,
        weights=recorded_map.weights.pick(pick),
        gradient=None if recorded_map.gradient is None else recorded_map.gradient.pick(pick),
    )


def _indices(name: str, index: Index, count: int, owner: str = "") -> list[int]:
    """The numbers that an index selects, counted from 0."""
    if isinstance(index, slice):
        numbers = list(range(count))[index]
    else:
        numbers = [index] if isinstance(index, int) else list(index)
    for n in numbers:
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"{name} must be whole numbers, a slice of them or one, got {n!r}; try {name}=0")
        if not -count <= n < count:
            valid = f"0 to {count - 1}" if count else "none"
            raise IndexError(f"{name}={n} is not there{f' in {owner!r}' if owner else ''}; there are {valid}")
    if not numbers:
        raise IndexError(f"{name}={index} chooses none of {count}; leave it out for all")
    return [n % count for n in numbers]


def stitch(maps: Sequence[RecordedMap]) -> tuple[RecordedMap, ...]:
    """One map per module, rows by absolute position."""
    stitched = []
    for name in dict.fromkeys(m.name for m in maps):
        calls = [m for m in maps if m.name == name]
        if len(calls) == 1:
            stitched += calls
            continue
        groups = {(m.kind, m.shape[:-2], m.heads, m.rows is None) for m in calls}
        if len(groups) > 1 or calls[0].rows is not None:
            raise ValueError(
                f"the calls of {name!r} are of several kinds or batches, or of some rows only, "
                f"{[m.shape for m in calls[:3]]}; stitch one generation, as in select(sample=0, calls=slice(0, 5))"
            )
        end = calls[0].step
        for recorded_map in calls:
            if recorded_map.step != end:
                raise ValueError(
                    f"call {recorded_map.call} of {name!r} begins at position {recorded_map.step}, "
                    f"and the calls before it end at {end}; "
                    "stitch the steps of one generation, as in select(calls=slice(0, 5))"
                )
            end += recorded_map.shape[-2]
        slid = any(m.first for m in calls)
        if slid and calls[0].step:
            raise ValueError(
                f"the calls of {name!r} begin at position {calls[0].step}, and its cache has dropped the keys before "
                "that; stitch them from the first on, as in select(calls=slice(0, 5))"
            )
        weights = [m.weights for m in calls]
        joined = derive(name, calls[0].kind, stitch_windows(weights) if slid else StitchedMap(*weights), calls, "steps")
        stitched.append(replace(joined, step=calls[0].step, heads=calls[0].heads))
    return tuple(stitched)


def subtract(maps: Sequence[RecordedMap], other_maps: Sequence[RecordedMap]) -> tuple[RecordedMap, ...]:
    seconds = {(m.name, m.call): m for m in other_maps}
    firsts = {(m.name, m.call) for m in maps}
    unpaired = sorted(firsts.symmetric_difference(seconds))
    if unpaired:
        name, call = unpaired[0]
        whose = "the first" if unpaired[0] in firsts else "the second"
        raise ValueError(
            f"call {call} of {name!r} is in {whose} recording alone; take the maps that both have, as in select(layers)"
        )
    differences = []
    for recorded_map in maps:
        second = seconds[recorded_map.name, recorded_map.call]
        if (recorded_map.shape, recorded_map.rows, recorded_map.heads) != (second.shape, second.rows, second.heads):
            raise ValueError(
                f"{recorded_map.name!r} is {recorded_map.shape} in the first recording and {second.shape} in the "
                "second, or of other rows or heads; "
                "compare texts of as many tokens, or merge_words() into as many words"
            )
        difference = derive(
            recorded_map.name,
            recorded_map.kind,
            Difference(recorded_map.weights, second.weights),
            [recorded_map, second],
            "difference",
            recorded_map.call,
        )
        differences.append(
            replace(difference, step=recorded_map.step, rows=recorded_map.rows, heads=recorded_map.heads)
        )
    return tuple(differences)


def resolve_words(
    tokens: Sequence[str] | None, source: Sequence[str] | None, queries: Words | None, keys: Words | None
) -> tuple[Words, Words | None]:
    """The words of the queries and of the keys, as given or by the marks of the labels; keys may have none."""
    for name, words in (("queries", queries), ("keys", keys)):
        if words is not None:
            checks.instance_of(name, words, Words, "Words.by_mark(tokens)")
    if queries is None:
        if tokens is None:
            raise ValueError(
                "queries must be Words for a recording without labels; try with_labels(tokens).merge_words()"
            )
        # a short text may have no mark; both texts are of one tokenizer
        mark = detect_mark([*tokens, *(source or ())])
        queries = Words.by_mark(tokens, mark)
        if keys is None and source is not None:
            keys = Words.by_mark(source, mark)
    return queries, keys


def is_encoder(name: str) -> bool:
    """Whether this is the name of a module that reads the source."""
    return "encoder" in name and "decoder" not in name


def words_of_map(recorded_map: RecordedMap, queries: Words, keys: Words | None) -> tuple[Words, Words]:
    """The words of a map's rows and of its columns: self attention has one text on both sides."""
    q, k = recorded_map.shape[-2:]
    if recorded_map.kind == "self":
        is_source = (
            keys is not None
            and len(keys.word_ids) == k
            and (len(queries.word_ids) != k or is_encoder(recorded_map.name))
        )
        queries = keys = keys if is_source and keys is not None else queries
    if keys is None:
        raise ValueError(
            f"keys must be Words for {recorded_map.name!r}, which attends to another text "
            f"(kind {recorded_map.kind}); pass keys=, label them by with_labels(queries, keys), "
            "or take self attention with select(kind='self')"
        )
    if (len(queries.word_ids), len(keys.word_ids)) != (q, k) or recorded_map.rows is not None:
        raise ValueError(
            f"words must be made of {q} queries and {k} keys for {recorded_map.name!r}, got words of "
            f"{len(queries.word_ids)} and of {len(keys.word_ids)} tokens; "
            "stitch() joins steps, and select() takes one kind"
        )
    return queries, keys


def fits_labels(maps: Sequence[RecordedMap], count: int) -> bool:
    """Whether a side of some map has this number of tokens, or the whole text of a generation.

    A generation reads its text but for the last token that it makes. Selected rows do not show the length of their
    text, and a decoder may attend once per word.
    """
    if not maps or not count or any(m.rows is not None for m in maps):
        return True
    modules: dict[str, list[RecordedMap]] = {}
    for m in maps:
        modules.setdefault(m.name, []).append(m)
    lengths = set()
    for calls in modules.values():
        lengths |= {len(calls), *calls[0].shape[-2:], calls[-1].shape[-1]}
        if any(m.step for m in calls) or len({m.shape[-1] for m in calls}) > 1:
            end = max(m.step + m.shape[-2] for m in calls)
            lengths |= {end, end + 1}
    return count in lengths
