"""The guides: every link and picture is there, every guide is found from the first page, and pictures stay small."""

import re
from pathlib import Path

from tests.docs.pages import PAGES, ROOT
from tests.for_each import for_each

GUIDES = {path.stem: path for path in sorted((ROOT / "docs/guides").glob("*.md"))}
LINK = re.compile(r"\]\((?!https?:)(?P<file>[^)#\s]*)(?:#(?P<place>[\w-]+))?\)")


def places(page: str) -> set[str]:
    """The names by which headings are linked to."""
    headings = re.findall(r"^#+ (.+)$", page, flags=re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower())).strip("-") for heading in headings}


@for_each("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    outside_code = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for found in LINK.finditer(outside_code):
        target = (page.parent / found["file"]).resolve() if found["file"] else page
        assert target.exists(), f"{page.name} links to {found['file']}, which is not there"
        if found["place"] and target.suffix == ".md":
            assert found["place"] in places(target.read_text(encoding="utf-8")), f"{found[0]} in {page.name}"


@for_each("start", ["README.md", "docs/index.md"])
@for_each("guide", GUIDES)
def test_every_guide_is_found_from(start: str, guide: str) -> None:
    assert f"guides/{guide}.md" in (ROOT / start).read_text(encoding="utf-8")


@for_each("page", PAGES[1:], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_page_is_in_the_navigation(page: Path) -> None:
    said = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.search(rf"^ .*\b{re.escape(str(page.relative_to(ROOT / 'docs')))}$", said, flags=re.MULTILINE)


@for_each("guide", GUIDES.values(), ids=GUIDES)
def test_pictures_of_guides_are_small(guide: Path) -> None:
    for name in re.findall(r"\.\./images/([\w.-]+)", guide.read_text(encoding="utf-8")):
        assert (ROOT / "docs/images" / name).stat().st_size < 60_000, name
