"""Tiny runs of respond."""

from tests.tasks.case import Case

CASES = {
    "respond": Case(
        "--train DIALOGUES --tokens words --model hierarchical --width 6 --hidden 8 --turns 2 --words 4 --batch 64",
        ("a b\tc", "c"),
        ("dot", "additive"),
        ("b", "c c"),
    ),
    "respond+flat": Case(
        "--train DIALOGUES --tokens words --model flat --history bidirectional --width 8 --heads 2 --layers 1 "
        "--turns 2 --words 4 --batch 64",
        ("a b\tc", "c"),
        ("dot", "entmax"),
        ("b", "c c"),
    ),
}
