"""Labelled images: scikit-learn's digits, IDX files such as those of MNIST, folders of images. No torch here."""

import gzip
import math
import struct
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from regard.common import image_files, memory
from regard.common.suggestions import known
from regard.data.gzip_bound import max_unpacked, unpack_error
from regard.data.splitting import SPLIT_NAMES, check_labels, split_folder

# the data types and ranks of IDX files of images and labels
_BYTES, _RANKS = 0x08, {"images": 3, "labels": 1}
# file names of MNIST and its relatives
_NAMES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


@dataclass(frozen=True, eq=False)
class Images:
    """Images of one size with one class each."""

    pixels: NDArray[np.uint8]  # "n h w c"
    labels: NDArray[np.int64]  # "n"
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.pixels.ndim != 4 or len(self.pixels) != len(self.labels):
            raise ValueError(
                f"pixels must be (images, height, width, channels), one label each, got {self.pixels.shape} and "
                f"{len(self.labels)} labels; give grey pictures an axis of one channel"
            )
        check_labels(self.labels, self.classes, "image")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: NDArray[np.int64] | slice) -> "Images":
        return Images(self.pixels[index], self.labels[index], self.classes)


def digits() -> Images:
    """1,797 written digits, 8 × 8, 17 shades of grey  (Alpaydin & Kaynak 1998, as scikit-learn carries them)."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("the digits need scikit-learn; install it with: pip install 'regard[vision]'") from error
    dataset = load_digits()
    pixels = np.rint(dataset.images * (255 / 16)).astype(np.uint8)[..., None]
    return Images(pixels, dataset.target.astype(np.int64), tuple(map(str, range(10))))


def read_images(path: Path, split: str = "train", size: int | None = None) -> Images:
    """A folder with the IDX files of MNIST and its relatives, plain or .gz, or one with a folder of images per class.

    Image folders may contain the splits in folders called train, val and test, or test alone; all images are resized to
    `size` × `size`; without `size` they must have one size already.
    """
    known("split", split, SPLIT_NAMES)
    if not path.is_dir():
        raise ValueError(f"{path} is no folder; name one with IDX files, or with a folder of images per class")
    pair = [_plain_or_gz(path, name) for name in _NAMES.get(split, ())]
    if pair and all(pair):
        if size is not None:
            raise ValueError(f"size={size} is for pictures, and {path} holds IDX files; leave it out")
        return read_idx(*(file for file in pair if file is not None))
    if any(pair):
        present, missing = next(filter(None, pair)), _NAMES[split][pair.index(None)]
        raise ValueError(f"{present} is there, but not {missing} (or .gz); put it beside it")
    if (folder := split_folder(path, split)) is not None:
        return _read_class_folders(folder, size)
    # a test folder beside the class folders is no class
    return _read_class_folders(path, size, but=_NAMES if split == "train" else ())


def has_split(path: Path, split: str) -> bool:
    """Whether a folder holds a split of its own."""
    files = [_plain_or_gz(path, name) for name in _NAMES.get(split, ())]
    return (bool(files) and all(files)) or split_folder(path, split) is not None


def _plain_or_gz(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def read_idx(images: Path, labels: Path) -> Images:
    """The IDX format  (LeCun et al. 1998): a magic number, the sizes, the bytes."""
    pixels, marks = _idx(images, "images"), _idx(labels, "labels")
    if len(pixels) != len(marks):
        raise ValueError(
            f"{images} holds {len(pixels)} images and {labels} {len(marks)} labels; take two files that belong together"
        )
    count = int(marks.max()) + 1 if len(marks) else 0
    return Images(pixels[..., None], marks.astype(np.int64), tuple(map(str, range(max(count, 1)))))


def _idx(path: Path, what: str) -> NDArray[np.uint8]:
    rank = _RANKS[what]
    magic, start = struct.pack(">BBBB", 0, 0, _BYTES, rank), 4 + 4 * rank
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            header = file.read(start)
            if header[:4] != magic:
                raise ValueError(
                    f"{path} is no IDX file of {what}: it begins with {header[:4].hex(' ') or 'nothing'}, not "
                    f"{magic.hex(' ')}; is it another file, or packed without .gz in its name?"
                )
            sizes = struct.unpack(f">{rank}I", header[4:]) if len(header) == start else ()
            expected = math.prod(sizes)
            if path.suffix == ".gz" and start + expected > max_unpacked(path):
                raise unpack_error(path)
            # no more than declared: a small file can be unpacked to any size
            data = _read_at_most(file, expected + 1) if sizes else b""
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be unpacked ({error}); get the file again") from error
    if not sizes or len(data) != expected:
        expected_bytes, actual_bytes = start + (expected if sizes else 0), len(header) + len(data)
        raise ValueError(
            f"{path} should hold {expected_bytes} bytes for {what} of {sizes or 'no size'}, but has "
            f"{'more' if actual_bytes > expected_bytes else actual_bytes}; get the file again"
        )
    if not expected:
        raise ValueError(f"{path} holds {what} of {sizes}, which is nothing; get the file again")
    # writable: torch warns of memory that may not be written to
    return np.frombuffer(bytearray(data), np.uint8).reshape(sizes)


def _read_at_most(file: IO[bytes] | gzip.GzipFile, count: int) -> bytes:
    """At most `count` bytes, without allocating more than there are."""
    parts, remaining = [], count
    while remaining and (part := file.read(min(remaining, 1 << 24))):
        parts.append(part)
        remaining -= len(part)
    return b"".join(parts)


def _read_class_folders(folder: Path, size: int | None, but: Collection[str] = ()) -> Images:
    names = (path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    classes = sorted(name for name in names if name not in but)
    files = [
        (path, label)
        for label, name in enumerate(classes)
        for path in sorted((folder / name).rglob("*"))
        if path.suffix.lower() in image_files.SUFFIXES
    ]
    if not files:
        raise ValueError(
            f"{folder} holds neither IDX files ({_NAMES['train'][0]}) nor images in one folder per class; "
            f"put pictures ({', '.join(image_files.SUFFIXES)}) into folders that name their classes"
        )
    if size is not None:
        memory.check_fits(len(files) * size**2, f"size={size} for the {len(files):,} images of {folder}", "try size=64")
    pixels = [image_files.read(path, size=None if size is None else (size, size)) for path, _ in files]
    return Images(
        stack_images(pixels, [path for path, _ in files]), np.array([label for _, label in files]), tuple(classes)
    )


def stack_images(pixels: Sequence[NDArray[np.uint8]], names: Sequence[object]) -> NDArray[np.uint8]:  # "h w c" each
    """Stacks images of one size, which errors call by these names; if some are in colour, grey ones become colour."""
    check_one_size([image.shape[:2] for image in pixels], names)
    if len({image.shape[-1] for image in pixels}) > 1:
        pixels = [np.repeat(image, 3, -1) if image.shape[-1] == 1 else image for image in pixels]
    return np.stack(pixels)


def check_one_size(sizes: Sequence[Sequence[int]], names: Sequence[object]) -> None:
    """Raises unless all pictures have the height and width of the first one."""
    for name, (height, width) in zip(names, sizes, strict=True):
        if (height, width) != tuple(sizes[0]):
            raise ValueError(
                f"{name} is {width} × {height}, {names[0]} {sizes[0][1]} × {sizes[0][0]}; give size, such as size=32, "
                "to make them alike"
            )
