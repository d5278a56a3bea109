"""Tokens as printable labels: blanks, lone accents and control characters get a visible sign."""

import unicodedata
from collections.abc import Iterable

from regard.common.control_characters import code_point
from regard.data.text.special_tokens import UNKNOWN

# Signs of invisible characters; every other one is written U+XXXX.
_SIGNS = {" ": "␣", "\u00a0": "⍽", "\t": "⇥", "\n": "↵"}
_MARKS = ("Mn", "Mc", "Me")  # accents and vowel signs, which combine with the letter before
_ZERO_WIDTH = ("Mn", "Me", "Cf")
_CONTROLS = ("Cc", "Cs", "Zl", "Zp")  # move the cursor, break the line, or cannot be written to a file
_BIDI_CONTROLS = (
    "LRE",
    "RLE",
    "LRO",
    "RLO",
    "PDF",
    "LRI",
    "RLI",
    "FSI",
    "PDI",
)  # change the direction of the text around them


def printable(text: str) -> str:
    """The text on one line, without characters that control a terminal or break a file."""
    return "".join(
        _SIGNS.get(c, code_point(c))
        if unicodedata.category(c) in _CONTROLS or unicodedata.bidirectional(c) in _BIDI_CONTROLS
        else c
        for c in text
    )


def visible_label(token: str) -> str:
    """A token as a label that is never empty or blank and never begins with a bare accent."""
    if all(c.isspace() or unicodedata.category(c) in ("Cf", "Cn", "Co") for c in token):
        return "".join(_SIGNS.get(c, code_point(c)) for c in token) or "∅"
    return ("◌" if unicodedata.category(token[0]) in _MARKS else "") + printable(token)


def display_width(text: str) -> int:
    """The number of terminal columns: two for a wide East Asian character, none for an accent."""
    return sum(
        0 if unicodedata.category(c) in _ZERO_WIDTH else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def graphemes(text: str) -> list[str]:
    """The letters of the text, each with its accents."""
    letters: list[str] = []
    for c in text:
        if letters and (unicodedata.category(c) in _MARKS or unicodedata.category(c) == "Cf"):
            letters[-1] += c
        else:
            letters.append(c)
    return letters


def shorten(text: str, max_width: int) -> str:
    """The text in at most `max_width` columns, with an ellipsis where it was cut."""
    if display_width(text) <= max_width:
        return text
    shortened = ""
    for letter in graphemes(text):
        if display_width(shortened + letter) > max_width - 1:
            break
        shortened += letter
    return shortened + "…"


def shorten_middle(text: str, max_width: int) -> str:
    """The text in at most `max_width` columns, cut in its first half: the end, such as the tag of a word, stays."""
    if display_width(text) <= max_width:
        return text
    letters = graphemes(text)
    start, end = shorten(text, max(max_width // 3, 1)), ""
    for letter in reversed(letters):
        if display_width(start + letter + end) > max_width:
            break
        end = letter + end
    return start + end


def unknown_note(texts: Iterable[str]) -> str:
    """The meaning of the mark behind unknown tokens; "" if no text has it."""
    return f"{UNKNOWN} marks a token that the model does not know" if any(UNKNOWN in text for text in texts) else ""


def is_right_to_left(text: str) -> bool:
    """Whether a letter of the text is written from right to left."""
    return any(unicodedata.bidirectional(c) in ("R", "AL", "AN") for c in text)
