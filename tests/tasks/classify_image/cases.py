"""Tiny runs of classify-image."""

from tests.tasks.case import Case

CASES = {
    "classify-image": Case(
        "--train DIGITS --gate se --width 4 --depths 1 --batch 16", ("IMAGE",) * 2, ("none", "se"), ("0", "1")
    ),
    "classify-image+stn": Case(
        "--train DIGITS --model stn --width 4 --depths 1 --hidden 5 --batch 16", ("IMAGE",) * 2, (), ("0", "1")
    ),
}
