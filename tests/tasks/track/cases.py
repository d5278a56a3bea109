"""Tiny runs of track."""

from tests.tasks.case import Case

CASES = {
    "track": Case(
        "--train TURNS --embedding 5 --hidden 6 --batch 8",
        ("a table\nfood?\nb food", "area?\tc\td, no wait, e"),
        ("dot", "additive"),
        ("food=b; phone", "area=d"),
    ),
    "track+recurrent": Case(
        "--train TURNS --embedding 5 --hidden 6 --context recurrent --batch 8",
        ("a table\nfood?\nb food", "area?\tc\td, no wait, e"),
        ("dot", "additive"),
        ("food=b; phone", "area=d"),
    ),
    "track+encoder": Case(
        "--train TURNS --encoder BERT --freeze embeddings --hidden 6 --context attention --batch 8",
        ("a table\nfood?\nb food", "area?\tc\td, no wait, e"),
        ("dot", "entmax"),
        ("food=b; phone", "area=d"),
    ),
}
