"""Words of running text of every script: the one place that knows where a word begins and ends.  No torch here.

A combining mark (Unicode category M: vowel signs of Hindi, Thai or Hebrew, accents of decomposed Latin) belongs to the
character before it, and the joiners U+200C and U+200D are part of the word around them, as in Persian.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Literal

WordSplit = Literal["punctuation", "spaces", "marks", "alphanumeric", "hyphenated", "runs"]
# a text -> its words and their places in it
WordSplitter = Callable[[str], tuple[tuple[str, ...], tuple[tuple[int, int], ...]]]

# ranges of codes that hold the combining marks: scripts, and the variation selectors of plane 14
_MARK_RANGES = (range(0x300, 0x1F000), range(0xE0100, 0xE01F0))
_LETTER = r"[^\W\d_]"
_JOINER = r"[\u200c\u200d]"


@cache
def _marks() -> str:
    """The combining marks, as the inside of a character class."""
    codes = [code for block in _MARK_RANGES for code in block if unicodedata.category(chr(code))[0] == "M"]
    starts = [code for code, before in zip(codes, [-2, *codes], strict=False) if code != before + 1]
    ends = [code for code, after in zip(codes, [*codes[1:], -2], strict=False) if code + 1 != after]
    return "".join(f"{chr(start)}-{chr(end)}" for start, end in zip(starts, ends, strict=True))


@cache
def _pattern(how: WordSplit, is_ascii: bool) -> re.Pattern[str]:
    # ASCII text has no marks; without them the pattern is three times as fast
    marks = "" if is_ascii else f"[{_marks()}]*"

    def run_of(character: str) -> str:
        return (
            f"{character}+" if is_ascii else rf"{character}+(?:(?:[{_marks()}]|{_JOINER}(?={character})){character}*)*"
        )

    letters, run = run_of(_LETTER), run_of(r"\w")
    clitic = "(?:s|t|d|m|ll|re|ve|S|T|D|M|LL|RE|VE)"
    number, sign = rf"\d+(?:[.,]\d+)*{marks}", rf"[^\w\s]{marks}"
    patterns: dict[WordSplit, str] = {
        "punctuation": rf"{number}|{letters}(?:['’]{letters})*|{sign}|_|\S{marks}",
        "marks": rf"{number}|{letters}|{sign}|_|\S{marks}",
        "alphanumeric": rf"{run}|{sign}",
        "hyphenated": rf"{run}(?:['’-]{run})*",
        "spaces": r"\S+",
        "runs": rf"{number}|{letters}(?:['’]{letters})*|(?<!\w)['’]{clitic}(?!\w)|([^\w\s])\1+|{sign}|_|\S{marks}",
    }
    return re.compile(patterns[how])


def split_words(text: str, how: WordSplit = "punctuation") -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    """The words of a text and their places in it.

    punctuation    words and single signs; letters, numbers with their signs, and words with apostrophes stay whole
    marks          the same, but apostrophes part words, so that "Ford" is a word of "Ford's"
    alphanumeric   runs of letters and digits, and single signs
    hyphenated     runs of letters and digits with the apostrophes and hyphens inside, no other signs
    spaces         runs of anything but white space
    runs           as punctuation, but a run of one sign is a word, and so is an English clitic that stands apart, as 's
    """
    matches = list(_pattern(how, text.isascii()).finditer(text))
    return tuple(match.group() for match in matches), tuple(match.span() for match in matches)


@cache
def _inside() -> str:
    """The characters of words, as a character class."""
    return rf"[\w\u200c\u200d{_marks()}]"


@cache
def whole_words(pattern: str) -> re.Pattern[str]:
    r"""The pattern where it stands as whole words; like \b on both sides, but a mark does not end its word."""
    return re.compile(rf"(?<!{_inside()})(?:{pattern})(?!{_inside()})")


def find_phrase(phrase: str, text: str) -> tuple[int, int] | None:
    """The first place where a phrase stands in a text as whole words, in upper or lower case; None without one."""
    for match in re.finditer(re.escape(phrase), text, re.IGNORECASE):
        edges = (text[: match.start()][-1:], phrase[:1]), (phrase[-1:], text[match.end() :][:1])
        if not any(all(re.match(_inside(), character) for character in edge) for edge in edges):
            return match.span()
    return None
