"""Tiny runs of classify-clip."""

from tests.tasks.case import Case

CASES = {
    "classify-clip": Case(
        "--train CLIPS --width 4 --depths 1 --batch 16", ("test:0", "test:1"), ("paper", "dot"), ("still", "blink")
    ),
    "classify-clip+transformer": Case(
        "--train SIGNALS --model transformer --causal --width 4 --heads 2 --layers 1 --batch 16",
        ("test:0", "test:1"),
        ("scaled-dot", "entmax"),
        ("up", "down"),
    ),
}
