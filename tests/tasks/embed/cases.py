"""Tiny runs of embed."""

from tests.tasks.case import Case

CASES = {
    "embed": Case(
        "--train PAIRS --tokens characters --width 8 --heads 2 --layers 1 --batch 16 --valid-pairs 5",
        ("a b c", "c a"),
        ("dot", "entmax"),
        ("c b a", "a c"),
    ),
}
