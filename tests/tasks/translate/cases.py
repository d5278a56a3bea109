"""Tiny runs of translate."""

from tests.tasks.case import Case

CASES = {
    "translate": Case(
        "--train PAIRS --tokens words --width 6 --hidden 8 --batch 64 --valid-lines 3",
        ("a b c", "c a"),
        ("dot", "none"),
        ("a", "b"),
    ),
    "translate+conv": Case(
        "--train PAIRS --tokens words --model conv --layers 1 --width 6 --hidden 8 --batch 64 --valid-lines 3",
        ("a b c", "c a"),
        ("dot", "additive"),
        ("a", "b"),
    ),
    "translate+ntm": Case(
        "--train PAIRS --tokens words --model ntm --locations 7 --memory-width 3 --width 6 --hidden 8 --batch 64 "
        "--valid-lines 3",
        ("a b c", "c a"),
        (),
        ("a", "b"),
    ),
    "translate+pointer": Case(
        "--train PAIRS --tokens words --model pointer --width 6 --hidden 8 --batch 64 --valid-lines 3",
        ("a b c", "c a"),
        ("dot", "additive"),
        ("a", "c a"),
    ),
    "translate+universal": Case(
        "--train PAIRS --tokens words --model universal --max-steps 3 --heads 2 --width 6 --batch 64 --valid-lines 3",
        ("a b c", "c a"),
        ("dot", "additive"),
        ("a", "b"),
    ),
}
