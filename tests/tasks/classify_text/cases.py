"""Tiny runs of classify-text."""

from tests.tasks.case import Case

CASES = {
    "classify-text": Case(
        "--train TEXTS --width 5 --hidden 6 --hops 2 --feed 7 --batch 64",
        ("a good film", "bad. It was long."),
        ("dot", "entmax"),
        ("good", "bad"),
    ),
    "classify-text+encoder": Case(
        "--train TEXTS --encoder BERT --freeze embeddings --pooling first --batch 64",
        ("a good film", "bad. It was long."),
        ("dot", "entmax"),
        ("good", "bad"),
    ),
}
