"""Schemes that write labelled spans as one tag per token: IOB1, IOB2, BIOES and BILOU.

    IOB2    O  B-LOC  I-LOC  B-LOC  O       B begins every span
    IOB1    O  I-LOC  I-LOC  B-LOC  O       B only between two spans of one label  (Ramshaw and Marcus 1995)
    BIOES   O  B-LOC  E-LOC  S-LOC  O       E ends a span, S is a span of one token; BILOU writes L and U

A scheme says two things: which tag may follow which, and which tag continues the span of the tag before it. The second
also holds for sequences that break the first, so that every sequence of tags has spans, as in conlleval. The scheme
"none" has tags without prefixes, such as parts of speech: each but O is a span of one token, and any may follow any.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from regard.common.suggestions import known

OUTSIDE = "O"
NO_SCHEME = "none"
Reading = Literal["lenient", "strict"]


class TaggedSpan(NamedTuple):
    """Tokens start to end, the end excluded, with a label."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class _Prefixes:
    """The roles of the prefixes of a scheme, each a string of letters."""

    begin: str  # may stand where no span is open
    inside: str  # continue a span
    open: str  # leave a span open, which `inside` may continue
    unfinished: str  # must be continued: neither the end of the text nor another span may follow


SCHEMES: dict[str, _Prefixes] = {
    "IOB1": _Prefixes(begin="I", inside="I", open="BI", unfinished=""),
    "IOB2": _Prefixes(begin="B", inside="I", open="BI", unfinished=""),
    "BIOES": _Prefixes(begin="BS", inside="IE", open="BI", unfinished="BI"),
    "BILOU": _Prefixes(begin="BU", inside="IL", open="BI", unfinished="BI"),
    NO_SCHEME: _Prefixes(begin="", inside="", open="", unfinished=""),
}


# first of several tokens, single token, inside, last
_WRITTEN = {"BIOES": ("B", "S", "I", "E"), "BILOU": ("B", "U", "I", "L")}


def split_tag(tag: str) -> tuple[str, str]:
    """Prefix and label: "B-LOC" -> ("B", "LOC"), "O" -> ("O", "")."""
    prefix, _, label = tag.partition("-")
    return prefix, label


@dataclass(frozen=True)
class TagScheme:
    """A scheme by its name in `SCHEMES`, with the tags of a model in their order."""

    name: str
    tags: tuple[str, ...]

    def __init__(self, name: str, tags: Sequence[str]) -> None:
        known("scheme", name, SCHEMES)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "tags", tuple(tags))
        for tag in self.tags:
            if (problem := self.problem(tag)) is not None:
                raise ValueError(problem)
        if len(set(self.tags)) < len(self.tags):
            twice = next(tag for tag in self.tags if self.tags.count(tag) > 1)
            raise ValueError(f"tags must differ, but {twice!r} occurs twice; list every tag once")

    def problem(self, tag: str) -> str | None:
        """The sentence that says why `tag` is none of this scheme; None if it is one."""
        prefix, label = split_tag(tag)
        if self.name == NO_SCHEME or tag == OUTSIDE or (label and prefix in self._letters()):
            return None
        letters = ", ".join(f"{letter}-LABEL" for letter in self._letters())
        return f"the tag {tag!r} is none of {self.name}, which has {OUTSIDE}, {letters}; choose another scheme"

    def _letters(self) -> list[str]:
        roles = SCHEMES[self.name]
        return sorted(set("B" + roles.begin + roles.inside + roles.open))

    def label(self, tag: str) -> str:
        """The label of a tag: "LOC" of "B-LOC", and "" of "O"."""
        return "" if tag == OUTSIDE else tag if self.name == NO_SCHEME else split_tag(tag)[1]

    def joins(self, previous: str, tag: str) -> bool:
        """Whether `tag` continues the span of the tag before it, in sequences that keep the scheme and in others."""
        roles, (before, last), (prefix, label) = SCHEMES[self.name], split_tag(previous), split_tag(tag)
        return OUTSIDE not in (previous, tag) and label == last and before in roles.open and prefix in roles.inside

    def allows(self, previous: str | None, tag: str | None) -> bool:
        """Whether `tag` may follow `previous`; None is the border of the text, before its start and after its end."""
        roles = SCHEMES[self.name]
        if self.name == NO_SCHEME or (previous is not None and tag is not None and self.joins(previous, tag)):
            return True
        if previous is not None and split_tag(previous)[0] in roles.unfinished and previous != OUTSIDE:
            return False
        if tag is None or tag == OUTSIDE or split_tag(tag)[0] in roles.begin:
            return True
        # IOB1: B separates a span from another of its label
        label = split_tag(tag)[1]
        return self.name == "IOB1" and previous not in (None, OUTSIDE) and split_tag(str(previous))[1] == label

    def stray(self, tags: Sequence[str]) -> list[int]:
        """The indices whose tags the scheme forbids there, and len(tags) if the text may not end so."""
        edges: list[str | None] = [None, *tags, None]
        return [index for index, pair in enumerate(pairwise(edges)) if tags and not self.allows(*pair)]

    def violation(self, tags: Sequence[str]) -> int | None:
        """The first index whose tag the scheme forbids there, len(tags) if the text may not end so; None if none."""
        return next(iter(self.stray(tags)), None)

    def spans(self, tags: Sequence[str], reading: Reading = "lenient") -> list[TaggedSpan]:
        """The spans of a sequence. Lenient: a span begins wherever none continues; strict: without malformed ones."""
        spans: list[TaggedSpan] = []
        start = 0
        for end in range(1, len(tags) + 1):
            if end < len(tags) and self.joins(tags[end - 1], tags[end]):
                continue
            if tags[start] != OUTSIDE and (reading == "lenient" or self._is_well_formed(tags, start, end)):
                spans.append(TaggedSpan(start, end, self.label(tags[start])))
            start = end
        return spans

    def _is_well_formed(self, tags: Sequence[str], start: int, end: int) -> bool:
        """Whether tokens start to end are a span that the scheme allows, whatever stands beside it."""
        if self.name == NO_SCHEME:
            return True
        roles, last = SCHEMES[self.name], split_tag(tags[end - 1])[0]
        begins = split_tag(tags[start])[0] in roles.begin
        if self.name == "IOB1":
            begins = self.allows(tags[start - 1] if start else None, tags[start])
        return begins and last not in roles.unfinished

    def write(self, spans: Sequence[TaggedSpan], length: int) -> list[str]:
        """The tags of spans that do not overlap, over `length` tokens."""
        tags = [OUTSIDE] * length
        for start, end, label in sorted(spans):
            if self.name == NO_SCHEME:
                tags[start:end] = [label] * (end - start)
                continue
            first, single, inside, last = _WRITTEN.get(self.name, ("B", "B", "I", "I"))
            prefixes = single if end - start == 1 else first + inside * (end - start - 2) + last
            if self.name == "IOB1" and not (start and split_tag(tags[start - 1])[1] == label):
                prefixes = "I" * (end - start)
            tags[start:end] = [f"{prefix}-{label}" for prefix in prefixes]
        return tags
