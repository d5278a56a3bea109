"""Tiny runs of answer."""

from tests.tasks.case import Case

CASES = {
    "answer": Case(
        "--train STORIES --width 6 --hops 2 --restarts 2 --memory 8 --batch 16",
        ("Al went to a.\nBo went to b.\nWhere is Al?", "Bo went to c. Al went to b. Where is Bo?"),
        ("dot", "additive"),
        ("a", "c"),
    ),
}
