"""A browser per module, and a page that notes its requests and complaints."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.viz.looking import launched


class Seen:
    """A page with all that it asked for and complained about."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self.address = page, address
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def typed(self, text: str) -> None:
        """Types, and waits for what is shown next."""
        self.page.evaluate("document.getElementById('outcome').textContent = ''")
        self.page.locator("#text").fill("")
        self.page.locator("#text").press_sequentially(text)
        self.page.wait_for_selector("#outcome:not(:empty), #wrong:not(:empty)")

    def text(self, place: str) -> str:
        return str(self.page.locator(place).first.text_content())


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture
def seen(chromium: Any, address: str) -> Iterator[Seen]:
    context = chromium.new_context(viewport={"width": 900, "height": 900})
    made = Seen(context.new_page(), address)
    made.page.goto(address)
    yield made
    context.close()
    assert made.complaints == []
    assert all(url.startswith((f"{address}/", "data:")) for url in made.requests)
