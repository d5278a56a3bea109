"""The pages of mechanisms and of gates: every name has one, every page has a formula, a picture and an example."""

import inspect
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.docs.pages import ROOT, script
from tests.for_each import for_each

import regard


class Catalogue(NamedTuple):
    """A folder of docs: the names that it must tell of, the script of its pictures, and their greatest size."""

    folder: Path
    names: Collection[str]
    script: str
    most: int  # bytes
    index: Collection[str] = ()  # pictures of its first page

    @property
    def pages(self) -> list[Path]:
        return [path for path in sorted(self.folder.glob("*.md")) if path.stem != "index"]


CATALOGUES = [
    Catalogue(ROOT / "docs/mechanisms", regard.MECHANISMS, "draw", 25_000),
    Catalogue(ROOT / "docs/gates", regard.GATES, "draw_gates", 75_000, ["gates", "gate-shapes"]),
]
NAMED = re.compile(r"^Catalogue names?: (?P<names>.+)$", re.MULTILINE)
PICTURE = re.compile(r"^!\[[^\]]+\]\(\.\./images/(?P<file>[\w-]+\.png)\)$", re.MULTILINE)

each_catalogue = pytest.mark.parametrize("catalogue", CATALOGUES, ids=lambda one: one.folder.name)
each_page = for_each(
    "page", [page for one in CATALOGUES for page in one.pages], ids=lambda page: f"{page.parent.name}-{page.stem}"
)


def names(page: Path) -> list[str]:
    found = NAMED.search(page.read_text(encoding="utf-8"))
    return re.findall(r"`([\w-]+)`", found["names"]) if found else []


@each_catalogue
def test_every_name_has_one_page(catalogue: Catalogue) -> None:
    assert sorted(name for page in catalogue.pages for name in names(page)) == sorted(catalogue.names)


@each_page
def test_page_has_formula_picture_and_example(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "```math\n" in text
    assert re.search(r"```python\n(?:.+\n|\n)*?.*assert", text), "an example that proves something"
    for heading in ("Pitfalls", "When to use it", "Example"):
        assert f"\n## {heading}\n" in text
    assert PICTURE.findall(text) == [f"{page.stem}.png"]


@each_catalogue
def test_every_picture_is_there_and_small(catalogue: Catalogue) -> None:
    pytest.importorskip("matplotlib")
    pictures = script(catalogue.script).PICTURES
    assert sorted(pictures) == sorted([*(page.stem for page in catalogue.pages), *catalogue.index])
    for name in pictures:
        size = (ROOT / f"docs/images/{name}.png").stat().st_size
        assert size < catalogue.most, f"{name}.png has {size} bytes"


def test_a_picture_can_be_drawn_again(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw = script("draw")
    path = draw.drawing.draw(draw.PICTURES, "masks", tmp_path, draw.COLOURS)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_lists_are_those_of_the_catalogues() -> None:
    """`python docs/tables.py` writes them."""
    assert sorted(script("tables").stale()) == []


def test_every_public_name_is_in_the_reference() -> None:
    """Once, by the path of the documentation. Of the other namespaces, guides show the names."""
    listed = [
        path
        for page in sorted((ROOT / "docs/reference").glob("*.md"))
        for path in re.findall(r"^::: (regard\.[\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    guided = ("attacks", "attribution", "interop", "losses", "models")
    paths = [
        path
        for name, path in regard._paths().items()
        if name not in dir(regard) or not inspect.ismodule(getattr(regard, name))
    ]
    assert len(listed) == len(set(listed))
    assert set(listed) <= set(paths)
    assert not [path for path in set(paths) - set(listed) if path.split(".")[1] not in guided]
