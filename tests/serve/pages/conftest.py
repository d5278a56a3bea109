"""A browser per module, and pages that note their requests and complaints."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.viz.looking import launched, overflow, violations


class Seen:
    """A page with all that it asked for and complained about."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self.address = page, address
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(address)

    def typed(self, text: str) -> None:
        """Types, and waits for what is shown next."""
        self.page.evaluate("document.getElementById('outcome').textContent = ''")
        self.page.locator("#text").fill("")
        self.page.locator("#text").press_sequentially(text)
        self.page.wait_for_selector("#outcome:not(:empty), #wrong:not(:empty)")

    def text(self, place: str) -> str:
        return str(self.page.locator(place).first.text_content())

    def forget_refusals(self) -> None:
        """A browser notes that requests were refused; the page itself says nothing."""
        assert all("422" in complaint for complaint in self.complaints)
        self.complaints.clear()

    def check_layout(self) -> None:
        assert overflow(self.page) == 0
        assert violations(self.page) == []


OpenPage = Callable[..., Seen]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture
def open_page(chromium: Any) -> Iterator[OpenPage]:
    """Opens the page at an address; in the end it has asked for nothing else and complained about nothing."""
    pages: list[Seen] = []

    def open_page(address: str, width: int = 900, height: int = 900, **context: Any) -> Seen:
        opened = chromium.new_context(viewport={"width": width, "height": height}, **context)
        pages.append(Seen(opened.new_page(), address))
        return pages[-1]

    yield open_page
    for seen in pages:
        seen.page.context.close()
        assert seen.complaints == []
        assert all(url.startswith((f"{seen.address}/", "data:")) for url in seen.requests)


@pytest.fixture
def seen(open_page: OpenPage, address: str) -> Seen:
    return open_page(address)
