"""The search of the documentation works in pages that are opened from disk."""

import shutil
from pathlib import Path

import mkdocs.config
import pytest
from mkdocs.commands.build import build
from tests.viz.looking import launched, needed

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pages with the theme, the search and the scripts of the documentation."""
    folder = tmp_path_factory.mktemp("documentation")
    pages = folder / "docs"
    pages.mkdir()
    for name in ("iframe-worker.js", "side.css"):
        shutil.copy(ROOT / "docs" / name, pages)
    (pages / "index.md").write_text("# Overview\n\nHere is nothing.\n", encoding="utf-8")
    (pages / "gates.md").write_text("# Gates\n\nSqueeze and excitation weights channels.\n", encoding="utf-8")
    settings = mkdocs.config.load_config(str(ROOT / "mkdocs.yml"))
    configuration = mkdocs.config.load_config(
        str(ROOT / "mkdocs.yml"),
        docs_dir=str(pages),
        site_dir=str(folder / "site"),
        plugins=[name for name in settings.plugins if name.startswith("material/")],
        hooks=[],
        nav=["index.md", "gates.md"],
    )
    build(configuration)
    return folder / "site"


@needed
def test_a_page_from_disk_finds_a_word(site: Path) -> None:
    requests: list[str] = []
    with launched() as browser:
        page = browser.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.locator(".md-search__input").press_sequentially("excitation", delay=20)  # the search listens to keys
        link = page.locator(".md-search-result__link").first
        link.wait_for(state="attached", timeout=120_000)
        assert "gates.html" in link.get_attribute("href")
    assert all(url.startswith(("file:", "data:", "about:")) for url in requests), "nothing comes from another host"
