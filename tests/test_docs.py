"""Every example in README.md, docs/ and the docstrings runs.

The blocks of one page share a namespace, as they do in the reader's head, and run in an empty directory. A block under
`<!-- not run: reason -->` is left out. Docstring examples find `torch` and `regard` imported.
"""

import contextlib
import doctest
import importlib
import io
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import regard

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

PAGES = [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if path.exists()]
MODULES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((SOURCE / "regard").rglob("*.py"))
    if path.name != "__main__.py"
]

OPENING = re.compile(r"^(?P<indent>\s*)```\s*(?P<language>python|pycon)\b")
NOT_RUN = re.compile(r"^\s*<!-- not run: \S.* -->\s*$")


class Block(NamedTuple):
    """A fenced block: its language, its text, the number of its first line counted from 0, and whether it is to run."""

    language: str
    text: str
    line: int
    run: bool


def blocks(page: str) -> list[Block]:
    lines = page.splitlines()
    found, at = [], 0
    while at < len(lines):
        opening = OPENING.match(lines[at])
        if opening is None:
            at += 1
            continue
        first = at + 1
        last = next(n for n in range(first, len(lines)) if lines[n].strip() == "```")
        text = textwrap.dedent("\n".join(lines[first:last])) + "\n"
        found.append(Block(opening["language"], text, first, not (at and NOT_RUN.match(lines[at - 1]))))
        at = last + 1
    return found


def run_doctest(test: doctest.DocTest) -> None:
    report = io.StringIO()
    failures, _ = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.write, clear_globs=False)
    assert not failures, report.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__page__"}
    for block in blocks(page.read_text(encoding="utf-8")):
        if not block.run:
            continue
        if block.language == "pycon":
            run_doctest(doctest.DocTestParser().get_doctest(block.text, namespace, page.name, str(page), block.line))
        else:
            # The empty lines make a traceback point at the line of the page.
            code = compile("\n" * block.line + block.text, str(page), "exec")
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, namespace)


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    for test in doctest.DocTestFinder().find(module, extraglobs={"torch": torch, "regard": regard}):
        run_doctest(test)


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
        """
    )
    assert blocks(page) == [
        Block("python", "a = 1\n", 2, True),
        Block("python", "b = 2\n", 6, False),
        Block("pycon", ">>> a\n1\n", 10, True),
    ]


def test_a_skipped_block_needs_a_reason() -> None:
    assert blocks("<!-- not run: -->\n```python\na\n```")[0].run
