"""What stands at a position, so that one can see it: blanks, lone accents and control characters get a sign."""

import unicodedata

# Signs for what is there and cannot be seen; every other such character is written U+XXXX.
_SIGNS = {" ": "␣", "\u00a0": "⍽", "\t": "⇥", "\n": "↵"}
_MARKS = ("Mn", "Mc", "Me")  # accents and vowel signs: they sit on the letter before
_FLAT = ("Mn", "Me", "Cf")  # take no column of their own
_BARE = ("Cc", "Cs", "Zl", "Zp")  # would move the cursor, break the line, or cannot be written to a file
_TURNS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")  # would turn the order of what stands around


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


def legible(text: str) -> str:
    """The text on one line, without a character that could steer a terminal or break a file."""
    return "".join(
        _SIGNS.get(c, _code(c)) if unicodedata.category(c) in _BARE or unicodedata.bidirectional(c) in _TURNS else c
        for c in text
    )


def shown(piece: str) -> str:
    """A piece as a label: never empty, never blank, never an accent in the air."""
    if all(c.isspace() or unicodedata.category(c) in ("Cf", "Cn", "Co") for c in piece):
        return "".join(_SIGNS.get(c, _code(c)) for c in piece) or "∅"
    return ("◌" if unicodedata.category(piece[0]) in _MARKS else "") + legible(piece)


def columns(text: str) -> int:
    """How many columns of a terminal the text fills: two for the wide letters of East Asia, none for accents."""
    return sum(
        0 if unicodedata.category(c) in _FLAT else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def letters(text: str) -> list[str]:
    """The text letter by letter, accents kept with theirs."""
    found: list[str] = []
    for c in text:
        if found and (unicodedata.category(c) in _MARKS or unicodedata.category(c) == "Cf"):
            found[-1] += c
        else:
            found.append(c)
    return found


def shortened(text: str, most: int) -> str:
    """The text in at most so many columns, with an ellipsis where it was cut."""
    if columns(text) <= most:
        return text
    kept = ""
    for letter in letters(text):
        if columns(kept + letter) > most - 1:
            break
        kept += letter
    return kept + "…"


def leftward(text: str) -> bool:
    """Whether a letter of the text is written from right to left."""
    return any(unicodedata.bidirectional(c) in ("R", "AL", "AN") for c in text)
