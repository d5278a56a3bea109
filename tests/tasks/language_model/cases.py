"""Tiny runs of language-model."""

from tests.tasks.case import Case

CASES = {
    "language-model": Case(
        "--train LINES --model transformer-xl --memory 9 --width 8 --heads 2 --layers 1 --segment 24 --batch 3",
        ("a good film", "bad"),
        ("dot", "entmax"),
        (" it was", " a"),
        "--tokens 8",
    ),
}
