"""Tiny runs of tag."""

from tests.tasks.case import Case

CASES = {
    "tag": Case(
        "--train COLUMNS --embedding 5 --characters 4 --hidden 6 --batch 64",
        ("a trip to B C", "to D"),
        ("dot", "none"),
        ("O O O B-PLACE I-PLACE", "O B-PLACE"),
    ),
    "tag+encoder": Case(
        "--train COLUMNS --encoder BERT --freeze embeddings --batch 64",
        ("a trip to B C", "to D"),
        ("dot", "entmax"),
        ("O O O B-PLACE I-PLACE", "O B-PLACE"),
    ),
}
