"""Labelled images: what is in the file is what is read, and what is wrong with it is told."""

import gzip
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from tests.for_each import for_each

from regard.common import image_files
from regard.data.images.digit_splits import split_digits
from regard.data.images.labelled import Images, digits, has_split, read_idx, read_images
from regard.tasks.shared.image_data import brightness


def idx(path: Path, array: NDArray[np.uint8]) -> Path:
    data = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.fixture
def pixels() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (7, 5, 3), np.uint8)


LABELS = np.array([2, 0, 1, 1, 0, 2, 1], np.uint8)


@pytest.mark.parametrize("end", ["", ".gz"])
def test_idx_files_plain_and_packed(tmp_path: Path, pixels: NDArray[np.uint8], end: str) -> None:
    for split in ("train", "t10k"):
        idx(tmp_path / f"{split}-images-idx3-ubyte{end}", pixels)
        idx(tmp_path / f"{split}-labels-idx1-ubyte{end}", LABELS)
    for split in ("train", "test"):
        found = read_images(tmp_path, split)
        assert np.array_equal(found.pixels, pixels[..., None])
        assert found.labels.tolist() == LABELS.tolist()
        assert found.classes == ("0", "1", "2")
        assert has_split(tmp_path, split)


@for_each(
    ("harm", "said"),
    [
        (lambda data: data[:-1], r"should hold 121 bytes for images of \(7, 5, 3\), but has 120; get the file again"),
        (lambda data: data + b"x", "but has more; get the file again"),
        (lambda data: data[:9], r"should hold 16 bytes for images of no size, but has 9; get the file again"),
        (lambda data: b"", "is no IDX file of images: it begins with nothing, not 00 00 08 03"),
        (lambda data: b"\x00\x00\x08\x01" + data[4:], "it begins with 00 00 08 01, not 00 00 08 03; is it another"),
        (gzip.compress, "it begins with 1f 8b .*; is it another file, or packed without .gz in its name"),
    ],
)
def test_a_broken_idx_file_is_told(tmp_path: Path, pixels: NDArray[np.uint8], harm: object, said: str) -> None:
    images, labels = idx(tmp_path / "a", pixels), idx(tmp_path / "b", LABELS)
    images.write_bytes(harm(images.read_bytes()))
    with pytest.raises(ValueError, match=said):
        read_idx(images, labels)


@pytest.mark.parametrize("cut", [3, 40])
def test_a_broken_package_is_told(tmp_path: Path, pixels: NDArray[np.uint8], cut: int) -> None:
    images = idx(tmp_path / "a.gz", pixels)
    images.write_bytes(images.read_bytes()[:cut])
    with pytest.raises(ValueError, match=r"a\.gz cannot be unpacked \(.*\); get the file again"):
        read_idx(images, idx(tmp_path / "b", LABELS))


def test_files_that_do_not_belong_together(tmp_path: Path, pixels: NDArray[np.uint8]) -> None:
    with pytest.raises(ValueError, match="holds 7 images and .* 6 labels; take two files that belong together"):
        read_idx(idx(tmp_path / "a", pixels), idx(tmp_path / "b", LABELS[:6]))
    idx(tmp_path / "train-images-idx3-ubyte", pixels)
    with pytest.raises(ValueError, match=r"is there, but not train-labels-idx1-ubyte \(or \.gz\); put it beside it"):
        read_images(tmp_path)


def picture(path: Path, size: tuple[int, int], mode: str = "L", colour: object = 100) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)


def test_folders_of_pictures(tmp_path: Path) -> None:
    picture(tmp_path / "dog" / "1.png", (5, 3))
    picture(tmp_path / "cat" / "2.png", (5, 3), colour=30)
    picture(tmp_path / "cat" / "deep" / "1.PNG", (5, 3), colour=40)
    (tmp_path / "cat" / "notes.txt").write_text("no picture")
    found = read_images(tmp_path)
    assert found.classes == ("cat", "dog")
    assert found.pixels.shape == (3, 3, 5, 1)
    assert found.labels.tolist() == [0, 0, 1]
    assert found.pixels[:, 0, 0, 0].tolist() == [30, 40, 100]
    assert not has_split(tmp_path, "test")
    assert read_images(tmp_path, size=4).pixels.shape == (3, 4, 4, 1)


def test_colour_and_splits(tmp_path: Path) -> None:
    picture(tmp_path / "train" / "a" / "1.png", (2, 2))
    picture(tmp_path / "train" / "b" / "1.png", (2, 2), "RGBA", (1, 2, 3, 255))
    picture(tmp_path / "test" / "a" / "1.png", (2, 2), "RGB", (4, 5, 6))
    train, test = read_images(tmp_path, "train"), read_images(tmp_path, "test")
    assert train.pixels[:, 0, 0].tolist() == [[100, 100, 100], [1, 2, 3]]
    assert test.pixels[:, 0, 0].tolist() == [[4, 5, 6]]
    assert has_split(tmp_path, "test")


def test_pictures_that_cannot_be_read(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png", (4, 4))
    whole = (tmp_path / "a" / "1.png").read_bytes()
    for data in (b"no picture at all", whole[: len(whole) // 2], b""):
        (tmp_path / "a" / "2.png").write_bytes(data)
        with pytest.raises(ValueError, match=r"2\.png cannot be read as a picture .*; fix it, or take another"):
            read_images(tmp_path)


def test_deep_grey_and_pictures_on_their_side(tmp_path: Path) -> None:
    deep = np.array([[0, 4096, 32768, 65535]], np.uint16)
    (tmp_path / "a").mkdir()
    Image.fromarray(deep).save(tmp_path / "a" / "1.png")
    assert read_images(tmp_path).pixels[0, 0, :, 0].tolist() == [0, 16, 128, 255]
    turned = Image.new("L", (4, 8))
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "b" / "x").mkdir(parents=True)
    turned.save(tmp_path / "b" / "x" / "1.jpg", exif=exif)
    assert read_images(tmp_path / "b").pixels.shape == (1, 4, 8, 1)
    assert image_files.read(tmp_path / "b" / "x" / "1.jpg", size=(5, 3), mode="RGB").shape == (3, 5, 3)


def test_what_is_no_data(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nix is no folder; name one with IDX files, or with a folder of images"):
        read_images(tmp_path / "nix")
    with pytest.raises(ValueError, match="holds neither IDX files .* nor images in one folder per class"):
        read_images(tmp_path)
    with pytest.raises(ValueError, match="unknown split 'dev'; known are: train, valid, test"):
        read_images(tmp_path, "dev")
    picture(tmp_path / "a" / "1.png", (2, 2))
    picture(tmp_path / "a" / "2.png", (2, 3))
    with pytest.raises(ValueError, match=r"2\.png is 2 × 3, .*1\.png 2 × 2; give size, such as size=32"):
        read_images(tmp_path)
    idx(tmp_path / "train-images-idx3-ubyte", np.zeros((1, 2, 2), np.uint8))
    idx(tmp_path / "train-labels-idx1-ubyte", np.zeros(1, np.uint8))
    with pytest.raises(ValueError, match="size=9 is for pictures, and .* holds IDX files; leave it out"):
        read_images(tmp_path, size=9)


def test_labels_out_of_range_and_shapes() -> None:
    with pytest.raises(ValueError, match="labels must be from 0 to 1, got 2 for image 1; name as many classes"):
        Images(np.zeros((2, 1, 1, 1), np.uint8), np.array([0, 2]), ("a", "b"))
    with pytest.raises(ValueError, match=r"\(images, height, width, channels\), one label each, got \(2, 1, 1\) and"):
        Images(np.zeros((2, 1, 1), np.uint8), np.array([0, 1]), ("a", "b"))


def test_digits_in_parts() -> None:
    found = digits()
    assert found.pixels.shape == (1797, 8, 8, 1)
    assert found.pixels.max() == 255
    train, test = split_digits(found, 0.2, 3)
    assert len(train) + len(test) == len(found)
    shares = np.bincount(test.labels) / np.bincount(found.labels)
    assert np.abs(shares - 0.2).max() < 0.005
    # every image is in one part alone, and a seed draws the same again
    together = np.concatenate([train.pixels, test.pixels]).reshape(len(found), -1)
    assert np.array_equal(np.sort(together, 0), np.sort(found.pixels.reshape(len(found), -1), 0))
    assert np.array_equal(split_digits(found, 0.2, 3)[1].pixels, test.pixels)
    assert not np.array_equal(split_digits(found, 0.2, 4)[1].labels, test.labels)


def zeros(folder: Path) -> Path:
    """Two labels."""
    return idx(folder / "labels", np.zeros(2, np.uint8))


def test_a_small_file_is_not_unpacked_to_any_size(tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(struct.pack(">BBBBIII", 0, 0, 8, 3, 2, 5, 3) + bytes(200_000_000), 1))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"should hold 46 bytes for images of \(2, 5, 3\), but has more; get the file"):
        read_idx(path, zeros(tmp_path))
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_a_file_that_promises_more_than_there_is(tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_bytes(struct.pack(">BBBBIII", 0, 0, 8, 3, 2**31, 2**15, 2**15) + bytes(9))
    with pytest.raises(ValueError, match="but has 25; get the file again"):
        read_idx(path, zeros(tmp_path))


def test_a_small_packed_file_that_promises_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(struct.pack(">BBBBIII", 0, 0, 8, 3, 2**20, 2**7, 2**7) + bytes(100_000_000), 1))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"images.gz unpacks to more than [\d,]+ bytes, 200 times its size or more"):
        read_idx(path, zeros(tmp_path))
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_images_of_no_size(tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_bytes(struct.pack(">BBBBIII", 0, 0, 8, 3, 2, 0, 0))
    with pytest.raises(ValueError, match=r"holds images of \(2, 0, 0\), which is nothing; get the file again"):
        read_idx(path, zeros(tmp_path))


def test_what_is_judged_on_is_no_class(tmp_path: Path) -> None:
    for place in ("cat", "dog", "test/cat", "test/dog"):
        picture(tmp_path / place / "one.png", (5, 4))
    for split in ("train", "test"):
        found = read_images(tmp_path, split)
        assert (found.classes, len(found)) == (("cat", "dog"), 2)


def test_brightness_is_mean_and_spread() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 5, 4, 2)).astype(np.uint8)
    assert brightness(pixels) == pytest.approx((pixels.mean() / 255, pixels.std() / 255), rel=1e-12)
