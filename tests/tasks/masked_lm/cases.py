"""Tiny runs of masked-lm."""

from tests.tasks.case import Case

CASES = {
    "masked-lm": Case(
        "--train LINES --tokens characters --width 8 --heads 2 --layers 1 --segment 24 --batch 3 --valid-tokens 60",
        ("a g[MASK]od film", "ba[MASK] [MASK]"),
        ("dot", "entmax"),
        ("o", "d a"),
    ),
}
