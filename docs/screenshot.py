"""Pictures of the pages of a service, in a Chromium; they need pillow and playwright.

    python docs/screenshot.py demo-output/run          writes docs/images/serve.png: six dates pasted into the page

`regard demo` trains the run. Options: --out, --dark, --width. `docs/pictures.py` takes pages of chats.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

DATES = """en: Friday, May 5, 2017
de: 3. Oktober 1990
fr: mardi 14 juillet 2015

es: 12 de octubre de 1992
it: 2 giugno 2014
pt: 25 de abril de 1974"""
TURNS = ("We sit outside.", "I take tea.")
# a page has few colours, and a file with a table of them is a third as large
_COLOURS = 48


def paste_dates(page: Any) -> None:
    """Pastes dates into the page of a translator, and selects one of them and a digit of its translation."""
    page.locator("#language").fill("de")  # "3." ends no German sentence
    page.locator("#text").fill(DATES)
    page.locator("#results:not([hidden])").wait_for()
    page.locator(".sentence").nth(2).click()
    page.locator(".text", has_text="juillet").first.wait_for()
    page.locator("[aria-label='target tokens'] .token").first.click()
    page.locator("body").click(position={"x": 2, "y": 2})


def talk(page: Any) -> None:
    """Says two turns on the page of a model that replies."""
    for n, turn in enumerate(TURNS):
        page.locator("#text").fill(turn)
        page.locator("button[type=submit]").click()
        page.locator("#turns > li").nth(n).wait_for()
    page.locator("body").click(position={"x": 2, "y": 2})


def photograph(run: Path, out: Path, act: Callable[[Any], None], *, width: int = 1000, height: int = 900,
               dark: bool = False) -> Path:  # fmt: skip
    """Serves a run, acts on its page and writes a PNG of the whole page."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "regard", "serve", str(run), "--port", "0"]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert service.stdout is not None
    address = service.stdout.readline().split(" at ")[1].split(" ")[0]
    try:
        with sync_playwright() as playwright:
            flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
            scheme = "dark" if dark else "light"
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.goto(address)
            act(page)
            page.screenshot(path=out, full_page=True)
            browser.close()
        with Image.open(out) as picture:
            few = picture.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
        few.save(out, optimize=True)
    finally:
        service.terminate()
        service.wait()
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images" / "serve.png")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1000)
    options = parser.parse_args()
    photograph(options.run, options.out, paste_dates, width=options.width, dark=options.dark)


if __name__ == "__main__":
    main()
