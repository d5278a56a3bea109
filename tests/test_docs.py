"""Every example in README.md, docs/ and the docstrings runs; what a page quotes is what the source says.

How pages are read is in tests/docs/pages.py. Each runs in an empty directory. Docstring examples find `torch` and
`regard` imported.
"""

import doctest
import importlib
import textwrap
from pathlib import Path

import pytest
import torch
from tests.docs import pages
from tests.docs.pages import PAGES, ROOT, Block, blocks
from tests.for_each import for_each

import regard

MODULES = [
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "src/regard").rglob("*.py"))
    if path.name != "__main__.py"
]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pages.run(page)


@for_each("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_quoted_source_is_the_source(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == pages.quoted(text), "the source has changed: run python -m tests.docs.pages"


@for_each("name", MODULES)
def test_docstrings(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    for test in doctest.DocTestFinder().find(module, extraglobs={"torch": torch, "regard": regard}):
        if test.examples:
            pages.run_doctest(test)


def test_blocks_are_found_where_they_stand() -> None:
    page = textwrap.dedent(
        """\
        # Title
        ```python
        a = 1
        ```
        <!-- not run: needs a screen -->
        ```python
        b = 2
        ```
        - item
            ```pycon
            >>> a
            1
            ```
        ```bash
        ls
        ```
        <!-- source: regard.common.checks.known -->
        ```python
        def known(): ...
        ```
        """
    )
    assert blocks(page) == [
        Block("python", "a = 1\n", 2),
        Block("python", "b = 2\n", 6, run=False),
        Block("pycon", ">>> a\n1\n", 10),
        Block("bash", "ls\n", 14),
        Block("python", "def known(): ...\n", 18, run=False, source="regard.common.checks.known"),
    ]


def test_a_skipped_block_needs_a_reason() -> None:
    assert blocks("<!-- not run: -->\n```python\na\n```")[0].run


def test_a_quotation_is_brought_up_to_date() -> None:
    page = "before\n<!-- source: regard.common.checks.known -->\n```python\ndef old(): ...\n```\nafter\n"
    new = pages.quoted(page)
    assert new.startswith("before\n")
    assert new.endswith("```\nafter\n")
    assert "def known(" in new
    assert "old" not in new
    assert pages.quoted(new) == new


def test_a_quotation_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing.here is in no module; write"):
        pages.source("nothing.here")


def test_commands_are_those_of_regard_alone() -> None:
    assert pages.commands('regard translate runs/a \\\n  "4. April"  # said\n\nregard list\n') == [
        ["translate", "runs/a", "4. April"],
        ["list"],
    ]
    assert pages.commands('regard predict "two\nlines" --json\nregard list') == [
        ["predict", "two\nlines", "--json"],
        ["list"],
    ]
    with pytest.raises(AssertionError, match="a quotation has no end"):
        pages.commands('regard predict "two')
    assert pages.commands("pip install regard\nregard list\n") == []
