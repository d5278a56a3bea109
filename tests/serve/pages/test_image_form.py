"""The page of pictures in a browser: one drops a picture, sees what it is and where the model looked."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from tests.product import first
from tests.serve.http.test_h11_timeouts import running
from tests.serve.pages.conftest import OpenPage, Seen
from tests.serve.pictures import captioner, drawn, endpoint, glimpse_classifier, packed, sent

from regard.inference.limits import Limits
from regard.tasks.shared.image_endpoint import ImageEndpoint

# a file as a mouse lets it go over the page
DROP = """([name, type, data]) => {
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type }));
  for (const kind of ["dragover", "drop"])
    document.body.dispatchEvent(new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer: transfer }));
}"""
READY = "#outcome:not(:empty), #wrong:not(:empty)"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(endpoint("spatial-conv", body=300_000), body=300_000) as (port, _):
        yield f"http://127.0.0.1:{port}"


def dropped(seen: Seen, data: bytes, name: str = "a.png", kind: str = "image/png") -> None:
    seen.page.evaluate("for (const id of ['outcome', 'wrong']) document.getElementById(id).textContent = ''")
    seen.page.evaluate(DROP, [name, kind, base64.b64encode(data).decode()])
    seen.page.wait_for_selector(READY)


def asked(address: str, data: bytes, task: str = "classify") -> Any:
    body = {"image": sent(data), "maps": True}
    return httpx.post(f"{address}/v1/{task}", json=body, timeout=60).json()["answers"][0]


def test_one_drops_a_picture_and_sees(seen: Seen) -> None:
    page, data = seen.page, packed(drawn(3))
    assert page.title() == "Classify pictures with tiny"
    assert page.evaluate("document.activeElement.id") == "file"
    assert not page.locator("#results").is_visible()
    dropped(seen, data)
    answer = asked(seen.address, data)
    best = answer["classes"][0]
    assert seen.text("#outcome") == f"{best['name']}, {100 * best['probability']:.1f} %"
    rows = page.locator("#chances tbody tr")
    assert [rows.nth(n).locator("th").text_content() for n in range(3)] == [c["name"] for c in answer["classes"]]
    assert page.locator("#chooser option").count() == 2

    # every weight is in the table
    look = answer["maps"][0]
    page.locator("#attention summary").click()
    cells = page.locator("#attention tbody tr")
    cells.first.wait_for()
    found = [[float(w) for w in cells.nth(r).locator("td").all_text_contents()] for r in range(cells.count())]
    assert np.allclose(found, look["weights"][0], atol=6e-5)
    # another module: another map
    page.locator("#chooser").select_option("1")
    page.wait_for_function("document.querySelectorAll('#attention tbody tr').length === 4")


def test_colours_lie_over_the_places(seen: Seen) -> None:
    """The greatest weight has the brightest colour, the least one the darkest; without the map it is the picture."""
    grey = Image.new("L", (110, 70), 200)
    grey.paste(0, (0, 0, 55, 70))
    data = packed(grey)
    dropped(seen, data)
    weights = np.array(asked(seen.address, data)["maps"][0]["weights"][0])
    probe = """([r, c, rows, columns]) => {
      const sheet = document.querySelector('#overlay canvas');
      const x = Math.floor((c + 0.5) * sheet.width / columns), y = Math.floor((r + 0.5) * sheet.height / rows);
      const copy = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
      copy.drawImage(sheet, -x, -y);
      return [...copy.getImageData(0, 0, 1, 1).data.slice(0, 3)];
    }"""
    shape = weights.shape
    seen.page.wait_for_function("document.querySelector('#overlay canvas').height > 1")

    def at(n: int) -> list[int]:
        return list(seen.page.evaluate(probe, [*map(int, np.unravel_index(n, shape)), *shape]))

    # the colours of the scale, whatever lies under them
    assert at(int(weights.argmax())) == [254, 232, 56]
    assert at(int(weights.argmin())) == [0, 34, 78]
    seen.page.locator("#cover").uncheck()
    assert at(0) == [0, 0, 0]
    assert at(shape[1] - 1) == [200, 200, 200]


def test_by_keys_alone(seen: Seen, tmp_path: Path) -> None:
    (tmp_path / "b.jpg").write_bytes(packed(drawn(5), "JPEG"))
    seen.page.locator("#file").set_input_files(tmp_path / "b.jpg")
    seen.page.wait_for_selector(READY)
    assert " of 7, column " in seen.text("#overlay-status")
    seen.page.locator("#overlay").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowRight", "ArrowRight"):
        seen.page.keyboard.press(key)
    weights = asked(seen.address, (tmp_path / "b.jpg").read_bytes())["maps"][0]["weights"][0]
    said = seen.text("#overlay-status")
    assert said.startswith("row 2 of 7, column 3 of 11: ")
    assert float(said.rpartition(" ")[2]) == pytest.approx(weights[1][2], abs=6e-5)
    assert seen.page.locator("#overlay-status").get_attribute("role") == "status"


def test_what_is_wrong_is_said_and_goes_away(seen: Seen) -> None:
    for data, name, kind, sentence in (
        (b"not a picture", "a.txt", "text/plain", "the picture must be a PNG or JPEG file, got text/plain"),
        (b"not a picture", "a.png", "image/png", "image cannot be read as a picture (none of PNG, JPEG)"),
        (bytes(300_000), "a.png", "image/png", "the picture may have at most 224,850 bytes, got 300,000"),
    ):
        dropped(seen, data, name, kind)
        assert seen.text("#wrong").startswith(sentence)
        assert not seen.page.locator("#results").is_visible()
    seen.forget_refusals()
    dropped(seen, packed(drawn(1)))
    assert seen.text("#wrong") == ""
    assert seen.page.locator("#results").is_visible()


def test_what_one_sees_through_is_white_as_for_the_model(seen: Seen) -> None:
    seen.page.emulate_media(color_scheme="dark")
    dropped(seen, packed(Image.new("RGBA", (22, 14), (0, 0, 0, 0))))
    read = "(sheet) => [...sheet.getContext('2d').getImageData(3, 3, 1, 1).data]"
    assert seen.page.get_by_label("the image without weights").evaluate(read) == [255, 255, 255, 255]
    seen.page.locator("#cover").uncheck()
    assert seen.page.locator("#overlay canvas").evaluate(read) == [255, 255, 255, 255]


def test_who_complains_is_not_busy(seen: Seen) -> None:
    """A file that is not sent takes the place of one that is on its way."""
    seen.page.route("**/v1/classify", lambda route: None)  # never answered
    seen.page.evaluate(DROP, ["a.png", "image/png", sent(packed(drawn(1)))])
    seen.page.wait_for_selector("#ask[aria-busy=true]")
    dropped(seen, b"not a picture", "a.txt", "text/plain")
    assert seen.text("#wrong").startswith("the picture must be a PNG or JPEG file")
    assert seen.page.locator("#ask").get_attribute("aria-busy") is None
    seen.page.unroute("**/v1/classify")
    dropped(seen, packed(drawn(1)))
    seen.page.wait_for_selector("#ask:not([aria-busy])")
    assert seen.text("#wrong") == ""


def test_the_same_file_may_be_chosen_again(seen: Seen, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(packed(drawn(5)))
    file = seen.page.locator("#file")
    file.set_input_files(tmp_path / "a.png")
    seen.page.wait_for_selector(READY)
    assert file.input_value().endswith("a.png")
    # a browser says nothing of a choice that changes nothing
    with seen.page.expect_file_chooser():
        file.click()
    assert file.input_value() == ""
    assert seen.page.locator("#results").is_visible()


def test_a_model_that_does_not_say_where_it_looks(open_page: OpenPage) -> None:
    with running(endpoint(None)) as (port, _):
        seen = open_page(f"http://127.0.0.1:{port}")
        dropped(seen, packed(drawn(1)))
        assert seen.page.get_by_text("This model does not say where it looks").is_visible()
        assert seen.page.locator("#overlay canvas").is_visible()
        assert not seen.page.locator("#attention .legend").is_visible()


def test_a_path_of_glimpses_is_walked_through(open_page: OpenPage) -> None:
    with running(ImageEndpoint(glimpse_classifier(), Limits(), run="eye", step=1)) as (port, _):
        seen = open_page(f"http://127.0.0.1:{port}")
        assert seen.page.title() == "Classify pictures by glimpses with eye"
        dropped(seen, packed(drawn(1)))
        assert seen.page.locator("#chances tbody tr").count() == 3
        assert seen.text("#overlay-status").startswith("At step 1: greatest at row ")
        seen.page.locator("#stepper").focus()
        seen.page.keyboard.press("ArrowRight")
        seen.page.wait_for_function("document.getElementById('overlay-status').textContent.startsWith('At step 2: ')")


def test_a_sentence_is_told_word_by_word(open_page: OpenPage) -> None:
    with running(ImageEndpoint(captioner(), Limits(), run="teller", step=1)) as (port, _):
        seen, data = open_page(f"http://127.0.0.1:{port}"), packed(drawn(1))
        dropped(seen, data)
        got = asked(seen.address, data, "caption")
        assert seen.text("#outcome") == (got["text"] or "(nothing)").strip()
        assert not seen.page.locator("#chances").is_visible()
        assert seen.text("#overlay-status").startswith(
            f"At '{got['words'][0]}': " if len(got["words"]) > 1 else "greatest at row "
        )
        if len(got["words"]) > 1:
            seen.page.locator("#stepper").fill("1")
            begins = "(word) => document.getElementById('overlay-status').textContent.startsWith(word)"
            seen.page.wait_for_function(begins, arg=f"At '{got['words'][1]}': ")


@pytest.mark.parametrize("scheme", first(["light", "dark"]))
def test_it_fits_and_is_accessible(scheme: str, open_page: OpenPage, address: str) -> None:
    seen = open_page(address, 320, 640, color_scheme=scheme)
    dropped(seen, packed(drawn(2, 200, 40)))
    seen.page.locator("#attention summary").click()
    seen.page.locator("#attention tbody tr").first.wait_for()
    seen.check_layout()
