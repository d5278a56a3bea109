"""IDX files that somebody was given, and folders where a split stands beside classes."""

import gzip
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard.data.images.labelled import read_idx, read_images
from regard.tasks.shared.image_data import brightness


def labels(folder: Path, count: int) -> Path:
    path = folder / "labels"
    path.write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, count) + bytes(count))
    return path


def test_a_small_file_is_not_unpacked_to_any_size(tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(struct.pack(">BBBBIII", 0, 0, 8, 3, 2, 5, 3) + bytes(200_000_000), 1))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"should hold 46 bytes for images of \(2, 5, 3\), but has more; get the file"):
        read_idx(path, labels(tmp_path, 2))
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_a_file_that_promises_more_than_there_is(tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_bytes(struct.pack(">BBBBIII", 0, 0, 8, 3, 2**31, 2**15, 2**15) + bytes(9))
    with pytest.raises(ValueError, match="but has 25; get the file again"):
        read_idx(path, labels(tmp_path, 2))


def test_a_small_packed_file_that_promises_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(struct.pack(">BBBBIII", 0, 0, 8, 3, 2**20, 2**7, 2**7) + bytes(100_000_000), 1))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"images.gz unpacks to more than [\d,]+ bytes, 200 times its size or more"):
        read_idx(path, labels(tmp_path, 2))
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_images_of_no_size(tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_bytes(struct.pack(">BBBBIII", 0, 0, 8, 3, 2, 0, 0))
    with pytest.raises(ValueError, match=r"holds images of \(2, 0, 0\), which is nothing; get the file again"):
        read_idx(path, labels(tmp_path, 2))


def test_what_is_judged_on_is_no_class(tmp_path: Path) -> None:
    for place in ("cat", "dog", "test/cat", "test/dog"):
        (tmp_path / place).mkdir(parents=True)
        Image.new("L", (5, 4)).save(tmp_path / place / "one.png")
    for split in ("train", "test"):
        found = read_images(tmp_path, split)
        assert (found.classes, len(found)) == (("cat", "dog"), 2)


def test_brightness_is_mean_and_spread() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 5, 4, 2)).astype(np.uint8)
    assert brightness(pixels) == pytest.approx((pixels.mean() / 255, pixels.std() / 255), rel=1e-12)
