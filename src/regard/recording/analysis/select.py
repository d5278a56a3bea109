"""Which maps belong together: by name, kind and call, by head and sample, by step, by the words they are about."""

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import get_args

from regard.attn import checks
from regard.attn.maps.attention_map import AttentionMap
from regard.recording.analysis.derived_maps import Difference, HeadStack, Stitched, made, windows
from regard.recording.analysis.words import Words, shown
from regard.recording.recorded_map import Kind, RecordedMap

Index = int | slice | Sequence[int]


def maps(
    of: Sequence[RecordedMap],
    layers: str | Sequence[str] | None,
    kind: str | Sequence[str] | None,
    calls: Index | None,
) -> tuple[RecordedMap, ...]:
    found = list(of)
    if layers is not None:
        names = list(dict.fromkeys(one.name for one in of))
        wanted = [layers] if isinstance(layers, str) else list(layers)
        for pattern in wanted:
            if not any(fnmatchcase(name, pattern) for name in names):
                checks.known("layers", pattern, names)
        found = [one for one in found if any(fnmatchcase(one.name, pattern) for pattern in wanted)]
    if kind is not None:
        kinds = [kind] if isinstance(kind, str) else list(kind)
        for name in kinds:
            checks.known("kind", name, get_args(Kind))
        found = [one for one in found if one.kind in kinds]
    if calls is not None:
        within = _indices("calls", calls, max((one.call for one in found), default=-1) + 1)
        found = [one for one in found if one.call in within]
    return tuple(found)


def heads(one: RecordedMap, index: Index) -> RecordedMap:
    if len(one.shape) < 4:
        raise ValueError(f"{one.name!r} has no heads: its map is {one.shape}, (sample, query, key); leave heads out")
    names = list(range(one.shape[-3])) if one.heads is None else list(one.heads)
    if one.heads is None or isinstance(index, slice):
        wanted = _indices("heads", index, len(names), one.name)
    else:
        wanted = [_named(h, names, one.name) for h in ([index] if isinstance(index, int) else index)]
    return replace(
        one,
        weights=_heads(one.weights, wanted),
        gradient=None if one.gradient is None else _heads(one.gradient, wanted),
        heads=tuple(names[n] for n in wanted),
    )


def _named(head: int, names: list[int], owner: str) -> int:
    """Where a head of the module is among those that were recorded."""
    if head not in names:
        raise IndexError(f"heads={head} was not recorded of {owner!r}; there are {', '.join(map(str, names))}")
    return names.index(head)


def _heads(of: AttentionMap, wanted: Sequence[int]) -> AttentionMap:
    """Some heads, in that order; an even row of them in one go."""
    before = (slice(None),) * (len(of.shape) - 3)
    if list(wanted) == list(range(of.shape[-3])):
        return of
    step = wanted[1] - wanted[0] if len(wanted) > 1 else 1
    if step > 0 and all(b - a == step for a, b in pairwise(wanted)):
        return of.pick(*before, slice(wanted[0], wanted[-1] + 1, step))
    # other maps are put side by side, one by one
    return HeadStack(*[of.pick(*before, slice(h, h + 1)) for h in wanted])


def sample(one: RecordedMap, number: int) -> RecordedMap:
    if len(one.shape) < 3:
        raise ValueError(f"{one.name!r} has no samples: its map is {one.shape}, (query, key); leave sample out")
    (n,) = _indices("sample", number, one.shape[0], one.name)
    if one.shape[0] == 1:
        return one
    pick = slice(n, n + 1)
    return replace(
        one, weights=one.weights.pick(pick), gradient=None if one.gradient is None else one.gradient.pick(pick)
    )


def _indices(name: str, index: Index, count: int, owner: str = "") -> list[int]:
    """The whole numbers that an index means, from 0."""
    if isinstance(index, slice):
        found = list(range(count))[index]
    else:
        found = [index] if isinstance(index, int) else list(index)
    for n in found:
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"{name} must be whole numbers, a slice of them or one, got {n!r}; try {name}=0")
        if not -count <= n < count:
            there = f"0 to {count - 1}" if count else "none"
            raise IndexError(f"{name}={n} is not there{f' in {owner!r}' if owner else ''}; there are {there}")
    if not found:
        raise IndexError(f"{name}={index} chooses none of {count}; leave it out for all")
    return [n % count for n in found]


def stitched(of: Sequence[RecordedMap]) -> tuple[RecordedMap, ...]:
    """One map a module, rows by absolute position."""
    whole = []
    for name in dict.fromkeys(one.name for one in of):
        calls = [one for one in of if one.name == name]
        if len(calls) == 1:
            whole += calls
            continue
        like = {(one.kind, one.shape[:-2], one.heads, one.rows is None) for one in calls}
        if len(like) > 1 or calls[0].rows is not None:
            raise ValueError(
                f"the calls of {name!r} are of several kinds or batches, or of some rows only, "
                f"{[one.shape for one in calls[:3]]}; stitch one generation, as in select(sample=0, calls=slice(0, 5))"
            )
        end = calls[0].step
        for one in calls:
            if one.step != end:
                raise ValueError(
                    f"call {one.call} of {name!r} begins at position {one.step}, and the calls before it end at {end}; "
                    "stitch the steps of one generation, as in select(calls=slice(0, 5))"
                )
            end += one.shape[-2]
        slid = any(one.first for one in calls)
        if slid and calls[0].step:
            raise ValueError(
                f"the calls of {name!r} begin at position {calls[0].step}, and its cache has let go of what was before"
                "; stitch them from the first on, as in select(calls=slice(0, 5))"
            )
        weights = [one.weights for one in calls]
        joined = made(name, calls[0].kind, windows(weights) if slid else Stitched(*weights), calls, "steps")
        whole.append(replace(joined, step=calls[0].step, heads=calls[0].heads))
    return tuple(whole)


def differences(of: Sequence[RecordedMap], others: Sequence[RecordedMap]) -> tuple[RecordedMap, ...]:
    there = {(one.name, one.call): one for one in others}
    here = {(one.name, one.call) for one in of}
    apart = sorted(here.symmetric_difference(there))
    if apart:
        name, call = apart[0]
        whose = "the first" if apart[0] in here else "the second"
        raise ValueError(
            f"call {call} of {name!r} is in {whose} recording alone; take the maps that both have, as in select(layers)"
        )
    found = []
    for one in of:
        other = there[one.name, one.call]
        if (one.shape, one.rows, one.heads) != (other.shape, other.rows, other.heads):
            raise ValueError(
                f"{one.name!r} is {one.shape} in the first recording and {other.shape} in the second, "
                "or of other rows or heads; "
                "compare texts of as many pieces, or merged() by as many words"
            )
        both = made(one.name, one.kind, Difference(one.weights, other.weights), [one, other], "difference", one.call)
        found.append(replace(both, step=one.step, rows=one.rows, heads=one.heads))
    return tuple(found)


def words(
    pieces: Sequence[str] | None, source: Sequence[str] | None, queries: Words | None, keys: Words | None
) -> tuple[Words, Words | None]:
    """The words of the queries and of the keys, as given or by the marks of the labels; keys may have none."""
    for name, given in (("queries", queries), ("keys", keys)):
        if given is not None:
            checks.term(name, given, Words, "Words.by_mark(pieces)")
    if queries is None:
        if pieces is None:
            raise ValueError("queries must be Words for a recording without labels; try labelled(pieces).merge_words()")
        # a short text may show no mark: both are of one tokenizer
        mark = shown([*pieces, *(source or ())])
        queries = Words.by_mark(pieces, mark)
        if keys is None and source is not None:
            keys = Words.by_mark(source, mark)
    return queries, keys


def encodes(name: str) -> bool:
    """Is this the name of a module that reads the source?"""
    return "encoder" in name and "decoder" not in name


def fitting(one: RecordedMap, queries: Words, keys: Words | None) -> tuple[Words, Words]:
    """The words of a map's rows and of its columns: self attention has one text on both sides."""
    q, k = one.shape[-2:]
    if one.kind == "self":
        source = keys is not None and len(keys.of) == k and (len(queries.of) != k or encodes(one.name))
        queries = keys = keys if source and keys is not None else queries
    if keys is None:
        raise ValueError(
            f"keys must be Words for {one.name!r}, which looks at another text (kind {one.kind}); pass keys=, label "
            "them with labelled(queries, keys), or take self attention with select(kind='self')"
        )
    if (len(queries.of), len(keys.of)) != (q, k) or one.rows is not None:
        raise ValueError(
            f"words must be made of {q} queries and {k} keys for {one.name!r}, got words of {len(queries.of)} and of "
            f"{len(keys.of)} pieces; stitched() joins steps, and select() takes one kind"
        )
    return queries, keys
