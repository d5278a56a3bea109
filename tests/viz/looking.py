"""A page in a browser, with all that it asked for and complained about."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
needed = pytest.mark.skipif(browser is None, reason=f"none of these browsers is installed: {', '.join(BROWSERS)}")


@contextmanager
def launched() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    if browser is None:
        pytest.skip(f"none of these browsers is installed: {', '.join(BROWSERS)}")
    # the superuser cannot have a sandbox
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=browser, args=flags)
        yield made
        made.close()


def violations(page: Any) -> list[str]:
    """What axe finds on an open page."""
    axe = resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    page.evaluate(axe)
    found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{one['id']}: {json.dumps([node['html'][:200] for node in one['nodes'][:3]])}" for one in found["violations"]
    ]


def overflow(page: Any) -> int:
    """How many pixels a page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


class Seen:
    """One open page. `at` is what it says of the cell that the cursor is at."""

    def __init__(self, chromium: Any, address: str, *, width: int = 1300, height: int = 900, **wanted: Any) -> None:
        self.context = chromium.new_context(viewport={"width": width, "height": height}, **wanted)
        self.page = self.context.new_page()
        self.page.set_default_timeout(120_000)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.address = address
        self.page.goto(address)
        if wanted.get("java_script_enabled", True):
            self.settle()

    def _pause(self, milliseconds: int) -> None:
        """By a timer of the page: it runs after all earlier and shorter ones, however busy the machine is."""
        self.page.evaluate("(delay) => new Promise((resolve) => setTimeout(resolve, delay))", milliseconds)

    def settle(self) -> None:
        """Waits until what was asked for has been drawn."""
        self.page.wait_for_function(
            """() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => {
                const busy = document.querySelector('[role=tabpanel]:not([hidden]) [aria-busy=true]');
                resolve(document.body.dataset.drawn !== undefined && !busy);
            })))"""
        )
        self._pause(80)  # the sentence about a cell follows the pointer after 60

    @property
    def at(self) -> str:
        return str(self.page.inner_text("#status"))

    @property
    def hash(self) -> str:
        """The place in the address, which is written a little late."""
        self._pause(250)
        return str(self.page.evaluate("location.hash"))

    def text(self, place: str) -> str:
        return str(self.page.locator(place).first.inner_text())

    def tab(self, name: str) -> None:
        self.page.click(f"#tab-{name}")
        self.settle()

    def press(self, *keys: str) -> None:
        """Presses keys in the picture of the open tab."""
        self.page.focus("[role=tabpanel]:not([hidden]) [tabindex='0']")
        for key in keys:
            self.page.keyboard.press(key)
        self.settle()

    def to(self, place: str) -> None:
        """Follows a link to a place of the same page."""
        self.page.evaluate(
            """(place) => new Promise((resolve) => {
                const before = location.href;
                addEventListener('hashchange', resolve, { once: true });
                location.hash = place;
                if (location.href === before) resolve();
            })""",
            place,
        )
        self.settle()

    def nodes(self) -> int:
        return int(self.page.evaluate("document.querySelectorAll('*').length"))

    def overflow(self) -> int:
        return overflow(self.page)

    def pixel(self, i: int, j: int, panel: str = "heat") -> list[int]:
        """The colour in the middle of a cell, a little off the crosshair."""
        return list(
            self.page.evaluate(
                """([panel, i, j]) => {
                    const canvas = document.querySelector(`#panel-${panel} canvas`);
                    const [left, top, sx, sy, y, x] = JSON.parse(canvas.dataset.place);
                    const ratio = canvas.width / parseFloat(canvas.style.width);
                    const [px, py] = [(left + (j + 0.3 - x) * sx) * ratio, (top + (i + 0.3 - y) * sy) * ratio];
                    const copy = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
                    copy.drawImage(canvas, Math.floor(px), Math.floor(py), 1, 1, 0, 0, 1, 1);
                    return [...copy.getImageData(0, 0, 1, 1).data].slice(0, 3);
                }""",
                [panel, i, j],
            )
        )

    def violations(self) -> list[str]:
        return violations(self.page)

    def close(self) -> None:
        self.context.close()
