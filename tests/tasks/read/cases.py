"""Tiny runs of read."""

from tests.tasks.case import Case

CASES = {
    "read": Case(
        "--train QUESTIONS --embedding 5 --characters 4 --hidden 6 --batch 256",
        ("A b went to c. It was d.\nWhere did b go?", "b went to a\tWho went?"),
        ("dot", "none"),
        ("c", "b"),
    ),
}
