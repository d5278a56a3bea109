"""Running text as segments that are translated one by one and joined again: lines, or sentences of lines."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from regard.common.panics import is_panic

Split = Literal["none", "lines", "sentences"]


class TextSegment(NamedTuple):
    """A part of a text, and the white space before it, which its translation keeps."""

    before: str
    text: str


def split_text(text: str, split: Split, language: str = "en") -> list[TextSegment]:
    """The segments of a text, one at least; sentences never go beyond a line.

    Sentences are those of sentencex (Wikimedia), whose lists of abbreviations depend on the `language`, an ISO 639
    code; a language that it does not know is split like a relative, or like English.
    """
    if split == "none":
        return [TextSegment("", text)]
    segments, before = [], ""
    for line in text.splitlines(keepends=True):
        for part in _sentences(line, language) if split == "sentences" else [line]:
            words = part.strip()
            if not words:
                before += part
                continue
            start = part.index(words)
            segments.append(TextSegment(before + part[:start], words))
            before = part[start + len(words) :]
    return segments or [TextSegment("", text)]


def join_segments(segments: Sequence[TextSegment], translations: Sequence[str]) -> str:
    """The whole translation, with the white space of the source between its segments."""
    return "".join(segment.before + text for segment, text in zip(segments, translations, strict=True))


def _sentences(line: str, language: str) -> list[str]:
    try:
        import sentencex
    except ImportError as error:
        raise ImportError(
            "split='sentences' needs sentencex; install it with: pip install 'regard[serve]', or take split='lines'"
        ) from error
    try:
        return list(sentencex.segment(language, line))
    except BaseException as error:
        # sentencex 1.0 panics at "A", a no-break space and a full stop
        if not is_panic(error):
            raise
        return [line]
