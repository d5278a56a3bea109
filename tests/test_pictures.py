"""One reader of pictures: upright, in eight bits, refused by their first bytes where they are too much."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from regard import pictures


def packed(image: Image.Image, kind: str = "PNG") -> bytes:
    held = io.BytesIO()
    image.save(held, kind)
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
        assert pictures.read(source).tolist() == pixels.tolist()
    assert pictures.read(data, size=(3, 2), mode="L").shape == (2, 3, 1)


def test_grey_stays_grey_and_deep_grey_is_not_cut_off() -> None:
    assert pictures.read(packed(Image.new("L", (3, 2), 9))).shape == (2, 3, 1)
    deep = Image.fromarray(np.array([[0, 4096, 32768, 65535]], np.uint16))
    assert pictures.read(packed(deep))[0, :, 0].tolist() == [0, 16, 128, 255]


def test_what_is_too_large_is_told_before_anything_is_unpacked() -> None:
    with pytest.raises(ValueError, match=r"the picture must have at most 100 pixels, got 11 × 10; make it smaller"):
        pictures.read(packed(Image.new("L", (11, 10))), most=100)
    # what it claims is enough; beyond some size pillow itself refuses
    with pytest.raises(ValueError, match=r"a.png must have at most 1,000,000 pixels, got 9,000 × 9,000; make it small"):
        pictures.read(claims(9_000, 9_000), most=1_000_000, name="a.png")
    for side in (10_000, 2**31 - 1):
        with pytest.raises(ValueError, match=r"a.png cannot be read as a picture \(Image size"):
            pictures.read(claims(side, side), most=1_000_000, name="a.png")


def test_only_some_kinds() -> None:
    gif = packed(Image.new("L", (3, 2)), "GIF")
    assert pictures.read(gif).shape[:2] == (2, 3)
    with pytest.raises(ValueError, match=r"cannot be read as a picture \(none of PNG, JPEG\); mend it, or take anot"):
        pictures.read(gif, kinds=("PNG", "JPEG"))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder; name the pictures in it"):
        pictures.read(tmp_path)
    with pytest.raises(ValueError, match=r"there is no file .*nix\.png; name a picture that is there"):
        pictures.read(tmp_path / "nix.png")


@given(st.data(), st.sampled_from(["PNG", "JPEG"]))
@settings(max_examples=60, deadline=None)
def test_broken_bytes_are_one_sentence(draw: st.DataObject, kind: str) -> None:
    whole = bytearray(packed(Image.fromarray(np.arange(210, dtype=np.uint8).reshape(10, 7, 3)), kind))
    for _ in range(draw.draw(st.integers(0, 4))):
        whole[draw.draw(st.integers(0, len(whole) - 1))] = draw.draw(st.integers(0, 255))
    data = bytes(whole[: draw.draw(st.integers(0, len(whole)))])
    said = "the picture "
    try:
        assert pictures.read(data, kinds=("PNG", "JPEG"), most=10_000).ndim == 3
    except ValueError as error:
        said = str(error)
    assert said.startswith("the picture ")
