"""Characters that control a terminal: written as code points, so that a text from a file cannot move the cursor."""

import re

# C0 but the tab and the line feed, DEL, C1, separators of lines and paragraphs, controls of the direction of text
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def code_point(character: str) -> str:
    """U+001B of an escape."""
    return f"U+{ord(character):04X}"


def escape_controls(text: str) -> str:
    """The text with U+XXXX instead of each control character; tabs and line feeds stay."""
    return _CONTROLS.sub(lambda match: code_point(match[0]), text)
