"""The pages of the gates: every name has one, and every page has a formula, a picture and an example."""

import re
from pathlib import Path
from types import ModuleType

import pytest
from tests.docs.pages import script

import regard

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/gates"
PAGES = {path.stem: path for path in sorted(FOLDER.glob("*.md")) if path.stem != "index"}
NAMED = re.compile(r"^Named (?P<names>.+)\.$", re.MULTILINE)
PICTURE = re.compile(r"^!\[(?P<said>[^\]]+)\]\(\.\./images/(?P<file>[\w-]+\.png)\)$", re.MULTILINE)


def names(page: Path) -> list[str]:
    found = NAMED.search(page.read_text(encoding="utf-8"))
    return re.findall(r"`([\w-]+)`", found["names"]) if found else []


@pytest.fixture(scope="module")
def draw() -> ModuleType:
    pytest.importorskip("matplotlib")
    return script("draw_gates")


def test_every_gate_has_one_page() -> None:
    assert sorted(name for page in PAGES.values() for name in names(page)) == sorted(regard.GATES)


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_page_has_formula_picture_and_example(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "```text\n" in text
    assert re.search(r"```python\n(?:.+\n|\n)*?.*assert", text), "an example that proves something"
    for heading in ("What surprises", "When to use it", "Example"):
        assert f"\n## {heading}\n" in text
    assert [found["file"] for found in PICTURE.finditer(text)] == [f"{page.stem}.png"]


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_index_lists_the_page_with_its_names(page: Path) -> None:
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    row = next(line for line in index.splitlines() if f"({page.name})" in line)
    assert re.findall(r"`([\w-]+)`", row) == names(page)


def test_every_picture_is_there_and_small(draw: ModuleType) -> None:
    assert sorted(draw.PICTURES) == sorted([*PAGES, "gates"])
    for name in draw.PICTURES:
        size = (ROOT / f"docs/images/{name}.png").stat().st_size
        assert size < 75_000, f"{name}.png has {size} bytes"
