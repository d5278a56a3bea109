"""Fonts for a figure: those of the machine that have the characters which the usual font has not."""

import functools
import itertools
import unicodedata
from collections.abc import Iterable

# Drawn as boxes or as bitmaps: they have every character and show none.
_USELESS = ("Last Resort", "LastResort", "Color Emoji", "Blank")
# Scripts that one font draws together, under a name that is not theirs.
_TOGETHER = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "HANGUL": "CJK", "FULLWIDTH": "CJK", "IDEOGRAPHIC": "CJK"}


@functools.cache
def _characters(file: str) -> frozenset[int]:
    """What a font file has; nothing if it cannot be drawn with."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(file)
    except (OSError, RuntimeError):  # damaged, or of a kind that matplotlib cannot read
        return frozenset()
    return frozenset(font.get_charmap())


@functools.cache
def _installed() -> dict[str, str]:
    """Family -> file of its regular face. Also those that came after matplotlib wrote its own list."""
    from matplotlib import font_manager

    manager = font_manager.fontManager
    known = {entry.fname for entry in manager.ttflist}
    for file in sorted(set(font_manager.findSystemFonts()) - known):
        try:
            manager.addfont(file)
        except (OSError, RuntimeError, ValueError, UnicodeError):  # a file that is no font is no reason to draw nothing
            continue
    plain = [e for e in manager.ttflist if e.style == "normal" and str(e.weight) in ("400", "normal", "regular")]
    return {
        entry.name: str(entry.fname)
        for entry in sorted(plain, key=lambda entry: str(entry.fname), reverse=True)
        if not any(word in entry.name for word in _USELESS)
    }


def _nearness(family: str, script: str) -> tuple[bool, bool, bool, str]:
    """Least for the font that should be tried first: named after the script, upright strokes, a Noto."""
    return (script not in family.upper(), "Sans" not in family, not family.startswith("Noto"), family)


def _script(character: str) -> str:
    name = unicodedata.name(character, "?").split()[0]
    return _TOGETHER.get(name, name)


def families(words: Iterable[str]) -> tuple[list[str], frozenset[str]]:
    """The fonts to draw these words with, the usual one first, and the characters that none of them has."""
    from matplotlib import font_manager, rcParams

    usual = _characters(str(font_manager.findfont(font_manager.FontProperties())))
    lacking = sorted({c for c in "".join(words) if ord(c) not in usual and not c.isspace()})
    found: list[str] = []
    missing: set[str] = set()
    for character in lacking:
        if any(ord(character) in _characters(_installed()[family]) for family in found):
            continue
        script = _script(character)
        for family in sorted(_installed(), key=lambda family: _nearness(family, script)):
            if ord(character) in _characters(_installed()[family]):
                found.append(family)
                break
        else:
            missing.add(character)
    return [*rcParams["font.family"], *found], frozenset(missing)


def wanted(words: Iterable[str]) -> str:
    """Which fonts would have the characters of these words that no font here has; nothing if all are there."""
    _, missing = families(words)
    fonts: dict[str, str] = {}
    for character in sorted(missing):
        fonts.setdefault(_noto(character), character)
    if not fonts:
        return ""
    said = ", ".join(f"{font} (for U+{ord(character):04X})" for font, character in fonts.items())
    return f"no font here has every character of this; install {said}"


def _noto(character: str) -> str:
    """What a font that has the character is called."""
    # what lies this high and is no letter is a picture
    if ord(character) >= 0x1F000 and unicodedata.category(character) in ("So", "Sk"):
        return "Noto Emoji"
    script = _script(character)
    return f"Noto Sans {script if script == 'CJK' else script.title()}"


def spelt(text: str, missing: frozenset[str]) -> str:
    """The text with [U+XXXX] for the first character of each stretch that no font has, and an ellipsis for the rest."""
    out = ""
    for lacks, stretch in itertools.groupby(text, missing.__contains__):
        first, *rest = stretch
        # the circle that carried an accent carries no number
        said = f"[U+{ord(first):04X}{'…' if rest else ''}]"
        out = out.removesuffix("◌") + said if lacks else "".join((out, first, *rest))
    return out
