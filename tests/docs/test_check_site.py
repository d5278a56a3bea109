"""The check of the built site names every fault. `make docs` runs it on the whole site."""

from pathlib import Path

import pytest
from tests.docs.pages import script

check_site = script("check_site")

PAGES = {
    "index.html": '<nav><a href="far/two.html">2</a></nav><article id="top"><a href="#top">top</a>'
    '<a href="one.html">1</a><img src="a.png" alt="A map"><a href="https://example.org/gone">host</a></article>',
    "one.html": '<article><a href="index.html#top">home</a></article>',
    "404.html": '<a href="/index.html">home</a>',
}


def site(folder: Path, **changes: str) -> Path:
    for name, text in {**PAGES, **{f"{name}.html": text for name, text in changes.items()}}.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "far").mkdir()
    (folder / "far/two.html").write_text("<article></article>", encoding="utf-8")
    (folder / "a.png").touch()
    return folder


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('<a href="far/two.html">2</a>', ""),
        ("", "far/two.html: more than 3 clicks away by the links of the texts"),
        ('<a href="gone.html">', "one.html links to gone.html, which is not there"),
        ('<a href="index.html#no">', "one.html links to index.html#no, which has no such place"),
        ('<img src="a.png">', "one.html: no text (alt) for the picture a.png"),
        ('<script src="https://cdn.org/a.js">', "one.html loads https://cdn.org/a.js from another host"),
        (
            '<link rel="stylesheet" href="https://cdn.org/a.css">',
            "one.html loads https://cdn.org/a.css from another host",
        ),
        ('<link rel="canonical" href="https://docs.org/one.html">', ""),
        ('<a href="https://git.org/r/blob/main/README.md#x">', ""),
        (
            '<a href="https://git.org/r/blob/main/GONE.md">',
            "one.html links to https://git.org/r/blob/main/GONE.md, and",
        ),
    ],
)
def test_a_fault_is_named(text: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_site, "repository_address", lambda: "https://git.org/r")
    links = "" if fault.startswith("far/") else '<a href="far/two.html">2</a>'
    found = list(check_site.faults(site(tmp_path, one=f"<article>{links}{text}</article>")))
    assert [line[: len(fault)] for line in found] == ([fault] if fault else [])
