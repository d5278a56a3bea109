"""Every page that is written to a file, in both themes, on a phone and a screen: axe finds nothing, nothing overflows.

The pages of recordings have such tests in recording/page, those of the service in tests/serve/pages.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.for_each import for_each
from tests.viz.looking import launched, needed, overflow, violations
from tests.viz.test_browser import ARABIC, DATE, EMPTY, LONG
from tests.viz.test_episode import VIEW
from tests.viz.test_faithfulness import content

from regard.viz import draw
from regard.viz.faithfulness import write_page

pytestmark = needed

LONG_EPISODE = replace(
    VIEW,
    frames=np.zeros((92, 3, 5), np.float32),
    seen=[f"a rather long name of move {move}" for move in range(92)],
    actions=["up"] * 92,
    rewards=[0.0] * 92,
    values=[0.0] * 92,
    weights=torch.eye(92),
)
PAGES: dict[str, Callable[[Path], Path]] = {
    "alignment": lambda path: draw([replace(DATE, hard=True), ARABIC, EMPTY], path),
    "long alignment": lambda path: draw([LONG], path),
    "faithfulness": lambda path: write_page(content(), path),
    "episode": VIEW.save,
    "episode without attention": replace(VIEW, weights=None).save,
    "long episode": LONG_EPISODE.save,
}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with launched() as made:
        yield made


@for_each("name", PAGES)
def test_a_page_is_accessible(name: str, chromium: Any, tmp_path: Path) -> None:
    address = PAGES[name](tmp_path / "page.html").as_uri()
    page = chromium.new_page(viewport={"width": 320, "height": 640})
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(address)
    for width, scheme in ((320, "light"), (1300, "dark")):
        page.set_viewport_size({"width": width, "height": 640})
        page.emulate_media(color_scheme=scheme)
        assert violations(page) == [], scheme
        assert overflow(page) == 0, width
    assert complaints == []
    page.close()
