"""Control characters of every kind become code points, and no other character changes."""

import pytest

from regard.common.control_characters import escape_controls
from regard.viz.text import labels


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("\x1b[31mred\x1b]0;title\x07", "U+001B[31mredU+001B]0;titleU+0007"),
        ("a\x9b31m\x85", "aU+009B31mU+0085"),
        ("over\rwritten\x08\x7f", "overU+000DwrittenU+0008U+007F"),
        ("a\u202eb\u2066c\u2028", "aU+202EbU+2066cU+2028"),
        (
            "two\tcells\nand a line, ä, 注, \u05d0\u200e, \U0001f600",
            "two\tcells\nand a line, ä, 注, \u05d0\u200e, \U0001f600",
        ),
    ],
)
def test_examples(text: str, escaped: str) -> None:
    assert escape_controls(text) == escaped


def test_labels_and_terminals_agree_on_every_character() -> None:
    # the first plane, and that of tags and variation selectors; the others have letters and signs alone
    codes = (*range(0xD800), *range(0xE000, 0x10000), *range(0xE0000, 0xE1000))
    every = [chr(n) for n in codes if chr(n) not in "\t\n"]
    assert [c for c in every if escape_controls(c) != labels.printable(c)] == []
