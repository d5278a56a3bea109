"""The terms of concepts.md on the pages that they lead to: a hook of mkdocs.

Every term of a row, Chinese or English, is a tag of the page in its last column. Search weights tags above titles and
texts, and a page shows its tags above its title. A Chinese term is one word of the index: commas separate words, see
`separator` in mkdocs.yml, and a longer query is split by the words that the index has.
"""

import functools
import re
from pathlib import Path
from typing import Any, NamedTuple

CONCEPTS = Path(__file__).parent / "concepts.md"
_ROW = re.compile(r"^\| (?P<chinese>[^|]+) \| (?P<english>[^|]+) \|.*\]\((?P<page>[\w/-]+\.md)\) \|$", re.MULTILINE)


class Concept(NamedTuple):
    """A row of the tables."""

    chinese: list[str]
    english: list[str]
    page: str


@functools.cache
def concepts() -> list[Concept]:
    rows = _ROW.finditer(CONCEPTS.read_text(encoding="utf-8"))
    return [Concept(row["chinese"].split("、"), row["english"].split(", "), row["page"]) for row in rows]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs for the source of every page."""
    terms = [term for each in concepts() if each.page == page.file.src_uri for term in (*each.chinese, *each.english)]
    if terms:
        page.meta["tags"] = terms
    return markdown


def on_page_context(context: dict[str, Any], page: Any, **_: Any) -> dict[str, Any]:
    """Called by mkdocs before it fills the template, which shows tags."""
    context["tags"] = [{"name": term, "url": "concepts.html"} for term in page.meta.get("tags", [])]
    return context
