"""The pages of mechanisms and of gates: every name has one, every page has a formula, a picture and an example."""

import importlib.util
import inspect
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.docs.pages import ROOT, blocks, script, shown
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


# pages that are older than this rule; a new page is none of them
WITHOUT_FAILURE = {
    *("additive", "alibi", "bidaf", "co-attention", "cosine", "distance", "dot", "entmax", "general", "gumbel", "hard"),
    *("key-value", "linear", "local", "location", "location-sensitive", "memory-hop", "monotonic", "multi-head"),
    *("pooling", "set-distance", "shaw", "sigmoid", "sparsemax", "t5", "temperature", "topk", "transformer-xl"),
    *("trilinear", "uniform", "unnormalized"),
}
# `python -m benchmarks…`, torch 2.13.0, 2026-11-19, with or without words between
MEASURED = re.compile(r"`python -m (?P<module>benchmarks[\w.]*)[^`]*`.*?(\d{4}-\d\d-\d\d).*?[.)]\s", re.DOTALL)
CLAIM = re.compile(r"torch [\d.]+,\s\d{4}-\d\d-\d\d;\s\[claim\sand\scommand\]\(\.\./claims\.md#(?P<anchor>[\w-]+)\)")


@for_each(
    "page", [page for page in CATALOGUES[0].pages if page.stem not in WITHOUT_FAILURE], ids=lambda page: page.stem
)
def test_page_of_a_mechanism_has_a_number_and_a_failure(page: Path) -> None:
    """A number with its command, versions and date; and a case in which the mechanism fails, with what it prints."""
    text = page.read_text(encoding="utf-8")
    counted = MEASURED.search(text)
    if counted is not None:
        assert importlib.util.find_spec(counted["module"]) is not None
        assert re.search(r"torch\s\d+\.\d+\.\d+", counted[0]), "the version of torch"
    else:
        claim = CLAIM.search(text)
        assert claim is not None, "a number: `python -m benchmarks...`, torch 2.13.0, 2026-11-19; or that of a claim"
        claims = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
        assert f"](#{claim['anchor']})" in claims
    section = re.search(r"^## Where it fails\n(.*?)^## ", text, re.DOTALL | re.MULTILINE)
    assert section is not None, "## Where it fails"
    (block,) = blocks(section[1])
    assert block.run
    assert shown(section[1], block), "what the block prints, as ```text"


def test_every_mask_has_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in CATALOGUES[0].pages)
    names = [name for name in dir(regard.masks) if inspect.isclass(getattr(regard.masks, name)) and name != "Mask"]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


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
