"""The page of concepts: every name exists, and every term is on one row and reaches its page."""

import re
from collections import Counter

from tests.docs.pages import ROOT, script

import regard
from regard.tasks.registry import TASKS

CONCEPTS = script("concept_terms").concepts()
PAGE = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")


def test_every_row_is_a_concept_of_its_own() -> None:
    rows = [line for line in PAGE.splitlines() if line.endswith(".md) |")]
    assert len(rows) == len(CONCEPTS) >= 60, "a row is not read by concept_terms.py"
    terms = Counter(term for each in CONCEPTS for term in (*each.chinese, *each.english))
    assert [term for term, count in terms.items() if count > 1] == []
    assert all(re.search("[\u4e00-\u9fff]", term) for each in CONCEPTS for term in each.chinese)


def test_every_name_exists() -> None:
    for name in re.findall(r"`regard\.([\w.]+)", PAGE):
        value = regard
        for part in name.split("."):
            value = getattr(value, part)
    tasks = re.findall(r"`regard train ([\w-]+)`", PAGE)
    assert len(tasks) > 9
    assert set(tasks) <= TASKS.keys()


def test_words_of_copied_tutorials_are_there() -> None:
    """They found no page before."""
    terms = {term.lower() for each in CONCEPTS for term in each.english}
    wanted = """
        RNNsearch, SENet, positional encoding, alignment function, score function, attention distribution,
        attention vector, attention matrix F, update vector U, selection probability, bottom-up attention,
        top-down attention, global attention, intra-attention, bidirectional attention, parameter-free attention,
        external memory, network capacity, soft addressing, dialogue state tracking
    """
    assert {" ".join(term.lower().split()) for term in wanted.split(",")} <= terms
