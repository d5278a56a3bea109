"""Tiny runs of generate-image."""

from tests.tasks.case import Case

CASES = {
    "generate-image": Case(
        "--train DIGITS --gate eca --width 2 --noise 3 --judge 1 --batch 16",
        ("0", "1"),
        ("none", "half"),
        ("IMAGE",) * 2,
        "--picture OUT",
    ),
}
