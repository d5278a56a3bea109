"""Tiny runs of match."""

from tests.tasks.case import Case

CASES = {
    "match": Case(
        "--train SENTENCES --embedding 5 --characters 4 --hidden 6 --batch 64",
        ("a b c\ta c", "c a\tb b"),
        ("dot", "additive"),
        ("same", "other"),
    ),
}
