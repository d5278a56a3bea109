"""Fonts for a figure: installed fonts for the characters that the default font lacks."""

import functools
import itertools
import unicodedata
from collections.abc import Iterable

# Fonts of boxes or bitmaps, which claim every character and draw none.
_USELESS = ("Last Resort", "LastResort", "Color Emoji", "Blank")
# Scripts that belong to a font of another name.
_SHARED_FONTS = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "HANGUL": "CJK", "FULLWIDTH": "CJK", "IDEOGRAPHIC": "CJK"}


@functools.cache
def _characters(file: str) -> frozenset[int]:
    """The characters of a font file; none if matplotlib cannot draw with it."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(file)
    except (OSError, RuntimeError):  # damaged, or of a format that matplotlib cannot read
        return frozenset()
    return frozenset(font.get_charmap())


@functools.cache
def _installed() -> dict[str, str]:
    """Family -> file of its regular face, including fonts installed after matplotlib cached its list."""
    from matplotlib import font_manager

    manager = font_manager.fontManager
    cached_files = {entry.fname for entry in manager.ttflist}
    for file in sorted(set(font_manager.findSystemFonts()) - cached_files):
        try:
            manager.addfont(file)
        except (OSError, RuntimeError, ValueError, UnicodeError):  # not a font
            continue
    plain = [e for e in manager.ttflist if e.style == "normal" and str(e.weight) in ("400", "normal", "regular")]
    return {
        entry.name: str(entry.fname)
        for entry in sorted(plain, key=lambda entry: str(entry.fname), reverse=True)
        if not any(word in entry.name for word in _USELESS)
    }


def _font_rank(family: str, script: str) -> tuple[bool, bool, bool, str]:
    """Sort key, least for the best font: named after the script, a sans serif, a Noto."""
    return (script not in family.upper(), "Sans" not in family, not family.startswith("Noto"), family)


def _script(character: str) -> str:
    name = unicodedata.name(character, "?").split()[0]
    return _SHARED_FONTS.get(name, name)


def families(words: Iterable[str]) -> tuple[list[str], frozenset[str]]:
    """The fonts that draw these words, the default first, and the characters that no font has."""
    from matplotlib import font_manager, rcParams

    default = _characters(str(font_manager.findfont(font_manager.FontProperties())))
    other_characters = sorted({c for c in "".join(words) if ord(c) not in default and not c.isspace()})
    fallbacks: list[str] = []
    missing: set[str] = set()
    for character in other_characters:
        if any(ord(character) in _characters(_installed()[family]) for family in fallbacks):
            continue
        script = _script(character)
        for family in sorted(_installed(), key=lambda family: _font_rank(family, script)):
            if ord(character) in _characters(_installed()[family]):
                fallbacks.append(family)
                break
        else:
            missing.add(character)
    return [*rcParams["font.family"], *fallbacks], frozenset(missing)


def missing_fonts_note(words: Iterable[str]) -> str:
    """A sentence that names the fonts to install for these words; "" if no character is missing."""
    _, missing = families(words)
    fonts: dict[str, str] = {}
    for character in sorted(missing):
        fonts.setdefault(_noto_name(character), character)
    if not fonts:
        return ""
    names = ", ".join(f"{font} (for U+{ord(character):04X})" for font, character in fonts.items())
    return f"no installed font has all of these characters; install {names}"


def _noto_name(character: str) -> str:
    """The name of the Noto font that has the character."""
    # symbols in this range are emoji
    if ord(character) >= 0x1F000 and unicodedata.category(character) in ("So", "Sk"):
        return "Noto Emoji"
    script = _script(character)
    return f"Noto Sans {script if script == 'CJK' else script.title()}"


def spell_missing(text: str, missing: frozenset[str]) -> str:
    """The text with each run of missing characters as [U+XXXX] for the first, with an ellipsis for the rest."""
    spelt = ""
    for is_missing, run in itertools.groupby(text, missing.__contains__):
        first, *rest = run
        if is_missing:
            # the mark alone, without the circle that carried an accent
            spelt = spelt.removesuffix("◌") + f"[U+{ord(first):04X}{'…' if rest else ''}]"
        else:
            spelt = "".join((spelt, first, *rest))
    return spelt
