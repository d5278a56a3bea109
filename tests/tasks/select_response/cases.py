"""Tiny runs of select-response."""

from tests.tasks.case import Case

CASES = {
    "select-response": Case(
        "--train DIALOGUES --embedding 5 --width 6 --levels 1 --filters 3 2 --turns 2 --words 4 --candidates 3 "
        "--batch 8",
        ("a b\tc\nc a\nb", "c\nb a\nc c"),
        ("dot", "additive"),
        ("b", "c c"),
    ),
}
