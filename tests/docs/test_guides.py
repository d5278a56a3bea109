"""The guides: every link and picture is there, every guide is found from the first page, and pictures stay small."""

import re
from pathlib import Path

from tests.docs.pages import PAGES, ROOT, script
from tests.for_each import for_each

GUIDES = {path.stem: path for path in sorted((ROOT / "docs/guides").glob("*.md"))}
LINK = re.compile(r"\]\((?!https?:)(?P<file>[^)#\s]*)(?:#(?P<place>[\w-]+))?\)")


def places(page: str) -> set[str]:
    """The names by which headings are linked to."""
    headings = re.findall(r"^#+ (.+)$", page, flags=re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower())).strip("-") for heading in headings}


@for_each(
    "page",
    [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *(ROOT / "src").rglob("README.md")],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    outside_code = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for found in LINK.finditer(outside_code):
        target = (page.parent / found["file"]).resolve() if found["file"] else page
        assert target.exists(), f"{page.name} links to {found['file']}, which is not there"
        if found["place"] and target.suffix == ".md":
            assert found["place"] in places(target.read_text(encoding="utf-8")), f"{found[0]} in {page.name}"
    check_site = script("check_site")
    for address in re.findall(r"\]\((https://[^)\s]+)\)", outside_code):
        if target := check_site.repository_file(address, check_site.repository_address() or "https://none"):
            assert target.exists(), f"{page.name} links to {address}, and the repository has no such file"
            if target.suffix == ".md" and "#" in address:
                assert address.partition("#")[2] in places(target.read_text(encoding="utf-8")), address


def test_readme_is_short_and_links_to_the_index() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 200, "move details to a page of docs"
    assert "](docs/index.md)" in readme


# the verdicts whose classes README.md counts; those of a tuple are added
VERDICTS: dict[str, list[tuple[str, ...]]] = {
    "models-on-regard": [("equal",), ("as sdpa",)],
    "recorded-models": [("exact", "assembled", "certified"), ("no attention",), ("warned",)],
}


@for_each("page", VERDICTS)
def test_readme_has_the_counts_of(page: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    verdicts = dict(re.findall(r"^\| ([\w ]+) \| (\d+) \|", text, flags=re.MULTILINE))
    (built,) = re.findall(r"^([\d,]+) of ([\d,]+) classes were built", text, flags=re.MULTILINE)
    counts = [*built, *(str(sum(int(verdicts[name]) for name in names)) for names in VERDICTS[page])]
    assert not [count for count in counts if not re.search(rf"\b{count}\b", readme)]
    assert verdicts["WRONG"] == "0"


@for_each("page", PAGES[1:], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_page_is_in_the_navigation(page: Path) -> None:
    said = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.search(rf"^ .*\b{re.escape(str(page.relative_to(ROOT / 'docs')))}$", said, flags=re.MULTILINE)


@for_each("guide", GUIDES.values(), ids=GUIDES)
def test_pictures_of_guides_are_small(guide: Path) -> None:
    for name in re.findall(r"\.\./images/([\w.-]+)", guide.read_text(encoding="utf-8")):
        assert (ROOT / "docs/images" / name).stat().st_size < 60_000, name
