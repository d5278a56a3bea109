"""Tiny runs of caption."""

from tests.tasks.case import Case

CASES = {
    "caption": Case(
        "--train CAPTIONS --tokens words --annotation 6 --channels 4 --width 5 --hidden 7 --batch 64 --valid-lines 3",
        ("IMAGE",) * 2,
        ("soft", "hard"),
        ("one", "two"),
    ),
    "caption+encoder": Case(
        "--train CAPTIONS --tokens words --encoder VIT --freeze 1 --width 5 --hidden 7 --batch 64 --valid-lines 3",
        ("IMAGE",) * 2,
        ("soft", "hard"),
        ("one", "two"),
    ),
    "caption+conv": Case(
        "--train CAPTIONS --tokens words --model conv --layers 1 --gate se --annotation 6 --channels 4 "
        "--width 6 --hidden 7 --batch 64 --valid-lines 3",
        ("IMAGE",) * 2,
        ("dot", "hard"),
        ("one", "two"),
    ),
}
