"""The pages of the mechanisms: every name has one, and every page has a formula, a picture and an example."""

import re
from pathlib import Path
from types import ModuleType

import pytest
from tests.docs.pages import script

import regard

ROOT = Path(__file__).parents[2]
PAGES = {path.stem: path for path in sorted((ROOT / "docs/mechanisms").glob("*.md")) if path.stem != "index"}
NAMED = re.compile(r"^Named (?P<names>.+)\.$", re.MULTILINE)
PICTURE = re.compile(r"^!\[(?P<said>[^\]]+)\]\(\.\./images/(?P<file>[\w-]+\.png)\)$", re.MULTILINE)


def names(page: Path) -> list[str]:
    found = NAMED.search(page.read_text(encoding="utf-8"))
    return re.findall(r"`([\w-]+)`", found["names"]) if found else []


@pytest.fixture(scope="module")
def draw() -> ModuleType:
    pytest.importorskip("matplotlib")
    return script("draw")


def test_every_mechanism_has_one_page() -> None:
    assert sorted(name for page in PAGES.values() for name in names(page)) == sorted(regard.MECHANISMS)


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_page_has_formula_picture_and_example(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "```text\n" in text
    assert re.search(r"```python\n(?:.+\n|\n)*?.*assert", text), "an example that proves something"
    for heading in ("What surprises", "When to use it", "Example"):
        assert f"\n## {heading}\n" in text
    pictures = [found["file"] for found in PICTURE.finditer(text)]
    assert pictures == [f"{page.stem}.png"]


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_index_lists_the_page_with_its_names(page: Path) -> None:
    index = (ROOT / "docs/mechanisms/index.md").read_text(encoding="utf-8")
    row = next(line for line in index.splitlines() if f"({page.name})" in line)
    assert re.findall(r"`([\w-]+)`", row) == names(page)


def test_every_picture_is_there_and_small(draw: ModuleType) -> None:
    assert sorted(draw.PICTURES) == sorted(PAGES)
    for name in draw.PICTURES:
        size = (ROOT / f"docs/images/{name}.png").stat().st_size
        assert size < 25_000, f"{name}.png has {size} bytes"


def test_a_picture_can_be_drawn_again(draw: ModuleType, tmp_path: Path) -> None:
    path = draw.drawing.draw(draw.PICTURES, "masks", tmp_path, draw.COLOURS)
    assert path.read_bytes().startswith(b"\x89PNG")
