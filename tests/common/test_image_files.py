"""One reader of pictures: upright, on white, in eight bits; how large they are is known from their first bytes."""

import io
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from regard.common import image_files


def packed(image: Image.Image, kind: str = "PNG", **said: Any) -> bytes:
    held = io.BytesIO()
    image.save(held, kind, **said)
    return held.getvalue()


def claims(width: int, height: int) -> bytes:
    """A PNG that says it is so large, with a few bytes for all of it."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (head, b"IDAT" + zlib.compress(bytes(1000)), b"IEND")
    told = [struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one)) for one in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(told)


def test_bytes_are_read_as_their_file_is(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    data = packed(Image.fromarray(pixels))
    (tmp_path / "a.png").write_bytes(data)
    for source in (data, tmp_path / "a.png"):
        assert image_files.read(source).tolist() == pixels.tolist()
    assert image_files.read(data, size=(3, 2), mode="L").shape == (2, 3, 1)


def test_grey_is_one_channel_and_deep_grey_is_not_cut_off(tmp_path: Path) -> None:
    for mode, colour in (("1", 1), ("L", 255), ("LA", (255, 255))):
        assert image_files.read(packed(Image.new(mode, (3, 2), colour))).tolist() == [[[255]] * 3] * 2
    every = np.arange(65536, dtype=np.uint16).reshape(16, -1)
    wanted = np.rint(every / 257).astype(np.uint8)[..., None]
    for kind in ("PNG", "TIFF", "PPM"):  # pillow makes 32 bits of the last one
        assert np.array_equal(image_files.read(packed(Image.fromarray(every), kind)), wanted)


def test_deep_grey_needs_no_copy_that_is_wider(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = np.random.default_rng(0).integers(0, 65536, (37, 41), np.uint16)
    whole = image_files.read(packed(Image.fromarray(deep)))
    monkeypatch.setattr(image_files, "_PIXELS_PER_STRIP", 100)
    assert np.array_equal(image_files.read(packed(Image.fromarray(deep))), whole)
    data = packed(Image.new("I;16", (2_000, 1_000)))
    tracemalloc.start()
    try:
        image_files.read(data, size=(7, 5))
        # 2 bytes a pixel as they come from pillow, twice while they are joined, and the one that is made
        assert tracemalloc.get_traced_memory()[1] < 8 * 2_000_000 + (24 << 20)
    finally:
        tracemalloc.stop()


# black that is not there, 200 that hides what is behind it, black of a fifth
THROUGH = {
    "RGBA": [[[0, 0, 0, 0], [200, 200, 200, 255], [0, 0, 0, 51]]],
    "LA": [[[0, 0], [200, 255], [0, 51]]],
}


@pytest.mark.parametrize("mode", THROUGH)
def test_what_one_sees_through_is_white(mode: str) -> None:
    data = packed(Image.fromarray(np.array(THROUGH[mode], np.uint8)))
    found = image_files.read(data)
    assert found.shape[-1] == (1 if mode == "LA" else 3)
    assert found[0, :, 0].tolist() == [255, 200, 204]
    assert image_files.read(data, mode="L")[0, :, 0].tolist() == [255, 200, 204]


def test_a_colour_that_is_said_to_be_seen_through_is_white() -> None:
    grey = Image.fromarray(np.array([[0, 200, 7]], np.uint8))
    for image, through in ((grey, 7), (grey.convert("RGB"), (7, 7, 7)), (grey.convert("P"), 7)):
        found = image_files.read(packed(image, transparency=through), mode="L")
        assert found[0, :, 0].tolist() == [0, 200, 255]
    deep = Image.fromarray(np.array([[0, 51400, 1799]], np.uint16))
    assert image_files.read(packed(deep, transparency=1799))[0, :, 0].tolist() == [0, 200, 255]


def test_a_drawing_on_nothing_is_the_drawing_on_white() -> None:
    ink = np.zeros((28, 30), np.uint8)
    ink[5:23, 10:18] = 255
    drawing = Image.merge("LA", (Image.new("L", (30, 28), 0), Image.fromarray(ink)))
    small = {"size": (7, 9), "mode": "L"}
    wanted = image_files.read(packed(Image.fromarray(255 - ink)), **small)
    for image in (drawing, drawing.convert("RGBA")):
        assert np.array_equal(image_files.read(packed(image), **small), wanted)
    assert wanted.min() < 128


@pytest.mark.parametrize(("kind", "numbers"), [(np.float32, "any size"), (np.int32, "32 bits")])
def test_numbers_without_a_black_and_a_white(kind: type, numbers: str) -> None:
    image = Image.fromarray(np.array([[0, 1, 200]], kind))
    sentence = f"a.tif has numbers of {numbers} and does not say which are black and white; save it in 8 or 16 bits"
    with pytest.raises(ValueError, match=sentence):
        image_files.read(packed(image, "TIFF"), name="a.tif")


def test_how_large_it_is_is_known_before_anything_is_unpacked() -> None:
    assert image_files.read_size(packed(Image.new("L", (11, 10)))) == (11, 10)
    assert image_files.read_size(claims(9_000, 9_000)) == (9_000, 9_000)
    # beyond some size pillow itself refuses
    for side in (10_000, 2**31 - 1):
        with pytest.raises(ValueError, match=r"a.png cannot be read as a picture \(Image size"):
            image_files.read_size(claims(side, side), name="a.png")


def test_only_some_kinds() -> None:
    gif = packed(Image.new("L", (3, 2)), "GIF")
    assert image_files.read(gif).shape[:2] == (2, 3)
    with pytest.raises(ValueError, match=r"cannot be read as a picture \(none of PNG, JPEG\); fix it, or take anot"):
        image_files.read(gif, formats=("PNG", "JPEG"))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder; name the pictures in it"):
        image_files.read(tmp_path)
    with pytest.raises(ValueError, match=r"there is no file .*nix\.png; name a picture that is there"):
        image_files.read(tmp_path / "nix.png")


@given(st.data(), st.sampled_from(["PNG", "JPEG"]))
@settings(max_examples=60, deadline=None)
def test_broken_bytes_are_one_sentence(draw: st.DataObject, kind: str) -> None:
    whole = bytearray(packed(Image.fromarray(np.arange(210, dtype=np.uint8).reshape(10, 7, 3)), kind))
    for _ in range(draw.draw(st.integers(0, 4))):
        whole[draw.draw(st.integers(0, len(whole) - 1))] = draw.draw(st.integers(0, 255))
    data = bytes(whole[: draw.draw(st.integers(0, len(whole)))])
    said = "the picture "
    try:
        wide, high = image_files.read_size(data, formats=("PNG", "JPEG"))
        if wide * high <= 10_000:
            assert image_files.read(data, formats=("PNG", "JPEG")).ndim == 3
    except ValueError as error:
        said = str(error)
    assert said.startswith("the picture ")


def test_nothing_is_handed_to_another_program(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n")
    with pytest.raises(ValueError, match=r"a\.png cannot be read as a picture \(none of PNG, JPEG, .*\); fix it, or"):
        image_files.read(path)
