"""Checks the built site: python docs/check_site.py [site].

Every link within it leads to a file and, behind #, to an element with that id; links to files of the repository on its
host lead to files. Links to other hosts are not opened, and pages load nothing from them. Every picture has a text, and
every page is at most three clicks away from the first one by the links of the texts, without those of the navigation.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

ROOT = Path(__file__).parents[1]
CLICKS = 3
# the page of errors: its addresses begin at the host, and no page links to it
_ERRORS = "404.html"
# attributes by which a page loads files
_LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


@dataclass
class Page(HTMLParser):
    """The links, ids and pictures of a page."""

    text: str
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    article: list[str] = field(default_factory=list)  # the links within the text of the page
    loads: list[str] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)  # pictures without a text
    _inside: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if name := values.get("id"):
            self.ids.add(name)
        if tag == "article":
            self._inside = True
        elif tag == "a" and "href" in values:
            self.links.append(values["href"])
            if self._inside:
                self.article.append(values["href"])
        elif tag in _LOADS and (address := values.get(_LOADS[tag])) and values.get("rel") != "canonical":
            self.loads.append(address)
        if tag == "img" and not values.get("alt", "").strip():
            self.untold.append(values.get("src", ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "article"


def repository_file(address: str, repository: str) -> Path | None:
    """The file that an address on the host of the repository names."""
    match = re.fullmatch(rf"{re.escape(repository)}/(?:blob|tree|raw)/[^/]+/(?P<file>[^#?]+).*", address)
    return ROOT / unquote(match["file"]) if match else None


def repository_address() -> str:
    """The address of the repository, from pyproject.toml; empty if it names none."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
    return next((url.rstrip("/") for name, url in urls.items() if name.lower() in ("repository", "source")), "")


def faults(site: Path) -> Iterator[str]:
    """A sentence for each fault of a site."""
    site = site.resolve()
    pages = {
        path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html")) if path.name != _ERRORS
    }
    repository = repository_address()
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        yield from (f"{name}: no text (alt) for the picture {source[:60]}" for source in page.untold)
        yield from (f"{name} loads {address} from another host" for address in page.loads if is_outside(address))
        for address in dict.fromkeys([*page.links, *page.loads]):
            if repository and (file := repository_file(address, repository)):
                if not file.exists():
                    yield f"{name} links to {address}, and the repository has no such file"
            elif not is_outside(address) and not address.startswith(("data:", "mailto:")):
                target, place = resolved(path, address)
                if not target.exists():
                    yield f"{name} links to {address}, which is not there"
                elif place and target in pages and place not in pages[target].ids:
                    yield f"{name} links to {address}, which has no such place"
    yield from far_pages(site, pages)


def is_outside(address: str) -> bool:
    return bool(re.match(r"(?:https?:)?//", address))


def resolved(page: Path, address: str) -> tuple[Path, str]:
    """The file that an address on a page leads to, and the place in it."""
    target, place = urldefrag(urljoin(page.as_uri(), address))
    return Path(unquote(target.removeprefix("file://").partition("?")[0])), unquote(place)


def far_pages(site: Path, pages: Mapping[Path, Page]) -> Iterator[str]:
    """A sentence for each page that is further away from the first one than CLICKS."""
    reached = {site / "index.html"}
    for _ in range(CLICKS):
        reached |= {
            resolved(path, address)[0]
            for path in reached & pages.keys()
            for address in pages[path].article
            if not is_outside(address)
        }
    for path in sorted(pages.keys() - reached):
        yield f"{path.relative_to(site).as_posix()}: more than {CLICKS} clicks away by the links of the texts"


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks links, pictures and distances of pages of the built site.")
    parser.add_argument("site", type=Path, nargs="?", default=ROOT / "site")
    found = list(faults(parser.parse_args().site))
    print("\n".join(found), end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
