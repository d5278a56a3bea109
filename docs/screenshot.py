"""The picture of the translation page in docs/guides/serve.md: six dates pasted into the service of a run.

    python docs/screenshot.py demo-output/run          writes docs/images/serve.png

`regard demo` trains the run. It needs pillow, playwright and a Chromium. Others: --out, --dark, --width.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

DATES = """en: Friday, May 5, 2017
de: 3. Oktober 1990
fr: mardi 14 juillet 2015

es: 12 de octubre de 1992
it: 2 giugno 2014
pt: 25 de abril de 1974"""


def main() -> None:
    from PIL import Image
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images" / "serve.png")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1000)
    options = parser.parse_args()
    command = [sys.executable, "-m", "regard", "serve", str(options.run), "--port", "0"]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert service.stdout is not None
    address = service.stdout.readline().split(" at ")[1].split(" ")[0]
    try:
        with sync_playwright() as playwright:
            flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
            scheme = "dark" if options.dark else "light"
            page = browser.new_page(viewport={"width": options.width, "height": 900}, color_scheme=scheme)
            page.goto(address)
            page.locator("#language").fill("de")  # "3." ends no German sentence
            page.locator("#text").fill(DATES)
            page.locator("#results:not([hidden])").wait_for()
            page.locator(".sentence").nth(2).click()
            page.locator(".text", has_text="juillet").first.wait_for()
            page.locator("[aria-label='target tokens'] .token").first.click()
            page.locator("body").click(position={"x": 2, "y": 2})
            page.screenshot(path=options.out, full_page=True)
            browser.close()
        with Image.open(options.out) as picture:
            # a page has few colours, and a file with a table of them is a third as large
            few = picture.convert("RGB").quantize(48, dither=Image.Dither.NONE)
        few.save(options.out, optimize=True)
    finally:
        service.terminate()
        service.wait()


if __name__ == "__main__":
    main()
