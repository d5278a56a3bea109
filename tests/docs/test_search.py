"""The search of the documentation works in pages that are opened from disk, in English and in Chinese."""

import shutil
from pathlib import Path
from typing import Any

import mkdocs.config
import pytest
from mkdocs.commands.build import build
from tests.docs.pages import script
from tests.viz.looking import launched, needed

ROOT = Path(__file__).parent.parent.parent
CONFIGURATION = str(ROOT / "mkdocs.yml")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pages with the theme, the search, the terms and the scripts of the documentation."""
    folder = tmp_path_factory.mktemp("documentation")
    pages = folder / "docs"
    (pages / "gates").mkdir(parents=True)
    for name in ("iframe-worker.js", "side.css"):
        shutil.copy(ROOT / "docs" / name, pages)
    (pages / "index.md").write_text("# Overview\n\nHere is nothing.\n", encoding="utf-8")
    (pages / "gates/simam.md").write_text("# SimAM\n\nIt separates a neuron from the others.\n", encoding="utf-8")
    settings = mkdocs.config.load_config(CONFIGURATION)
    search = {"material/search": {"separator": settings.plugins["material/search"].config.separator}}
    configuration = mkdocs.config.load_config(
        CONFIGURATION,
        docs_dir=str(pages),
        site_dir=str(folder / "site"),
        plugins=[search, "material/offline"],
        hooks=[str(ROOT / "docs/concept_terms.py")],
        nav=["index.md", "gates/simam.md"],
    )
    build(configuration)
    return folder / "site"


def results(page: Any, text: str) -> list[str]:
    """The pages that search shows for a text, from the first."""
    box = page.locator(".md-search__input")
    page.evaluate("document.querySelector('.md-search-result__list').replaceChildren()")
    box.fill(text)
    box.dispatch_event("keyup")  # the search listens to keys
    page.locator(".md-search-result__item").first.wait_for(state="attached", timeout=120_000)
    page.wait_for_timeout(50)  # further results follow in the same frame
    links = page.locator(".md-search-result__item > a").evaluate_all("links => links.map(link => link.href)")
    return [link.partition("?")[0].partition("#")[0] for link in links]


@needed
def test_a_page_from_disk_finds_a_word_in_two_languages(site: Path) -> None:
    requests: list[str] = []
    with launched() as browser:
        page = browser.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.goto((site / "index.html").as_uri())
        for text in ("neuron", "parameter-free attention", "无参注意力", "无参"):
            assert results(page, text)[0].endswith("gates/simam.html"), text
    assert all(url.startswith(("file:", "data:", "about:")) for url in requests), "nothing comes from another host"


@needed
@pytest.mark.whole
def test_every_term_finds_its_page_among_the_first_three(tmp_path: Path) -> None:
    """All terms of concepts.md, in the whole documentation."""
    build(mkdocs.config.load_config(CONFIGURATION, site_dir=str(tmp_path)))
    missed = []
    with launched() as browser:
        page = browser.new_page()
        page.goto((tmp_path / "index.html").as_uri())
        for concept in script("concept_terms").concepts():
            wanted = (tmp_path / concept.page).with_suffix(".html").as_uri()
            missed += [term for term in (*concept.chinese, *concept.english) if wanted not in results(page, term)[:3]]
    assert missed == []
