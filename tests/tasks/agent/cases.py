"""Tiny runs of agent."""

from tests.tasks.case import Case

CASES = {
    "agent": Case(
        "--env pairs --memory additive --width 8 --batch 8 --segment 6 --passes 1 --minibatches 2 --valid-episodes 5",
        ("0", "3"),
        ("none", "additive"),
        ("1 0 2 3", "0 0"),
    ),
}
