"""Tiny runs of glimpse."""

from tests.tasks.case import Case

CASES = {
    "glimpse": Case(
        "--train DIGITS --what 4 --where 4 --glimpse 6 --hidden 6 --glimpses 2 --gate simam --batch 16",
        ("IMAGE",) * 2,
        ("1", "2"),
        ("0", "1"),
    ),
}
