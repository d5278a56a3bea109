"""Clips from files: folders of numbered frames, animated GIF and PNG, and arrays of numpy.  No torch here."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.common import image_files, memory
from regard.data.clips.labelled import Clip
from regard.data.images.labelled import stack_images

ANIMATED = (".gif", ".png", ".apng", ".webp")
ARRAY = ".npy"
_NUMBER = re.compile(r"(\d+)(?!.*\d)")
_WAY_OUT = "name an animated GIF or PNG, or a folder of two or more numbered frames"


def read_clip(path: Path, *, size: tuple[int, int] | None = None, mode: str | None = None) -> Clip:
    """A folder of frames, an animation or an array; `size` is (width, height) to resize to, `mode` "L" or "RGB".

    An array of two axes is a signal, (samples, channels), of one axis a signal of one channel.
    """
    if path.is_dir():
        files = frame_paths(path)
        return _stacked(path, [image_files.read(file, size=size, mode=mode) for file in files], files)
    if path.suffix.lower() == ARRAY:
        return _array(path, size, mode)
    if path.suffix.lower() not in ANIMATED and path.exists():
        raise ValueError(f"{path} is no clip; {_WAY_OUT}, or an array, .npy")
    frames = image_files.read_frames(path, size=size, mode=mode)
    return _stacked(path, frames, [f"frame {n} of {path}" for n in range(len(frames))])


def frame_paths(folder: Path) -> list[Path]:
    """The pictures of a folder in the order of the numbers in their names, which must follow in equal steps."""
    files = [file for file in folder.iterdir() if file.suffix.lower() in image_files.SUFFIXES and file.is_file()]
    numbered: dict[int, Path] = {}
    for file in sorted(files):
        match = _NUMBER.search(file.stem)
        if match is None:
            raise ValueError(
                f"{file} has no number in its name, by which frames are ordered; name it like frame-001.png"
            )
        number = int(match[1])
        if number in numbered:
            raise ValueError(f"{file} and {numbered[number]} are both frame {number}; take one of them out")
        numbered[number] = file
    numbers = sorted(numbered)
    steps = np.diff(numbers)
    if len(steps) and (steps != steps[0]).any():
        n = int(np.flatnonzero(steps != np.bincount(steps).argmax())[0])
        raise ValueError(
            f"{folder} has frame {numbers[n + 1]} behind frame {numbers[n]}, but frames must follow in equal steps; "
            "add those that are missing, or number them anew"
        )
    return [numbered[number] for number in numbers]


def _stacked(path: Path, frames: list[NDArray[np.uint8]], names: Sequence[object]) -> NDArray[np.uint8]:
    if len(frames) < 2:
        raise ValueError(f"{path} has {'no frame' if not frames else 'one frame'}, and a clip needs two; {_WAY_OUT}")
    return stack_images(frames, names)


def _array(path: Path, size: tuple[int, int] | None, mode: str | None) -> Clip:
    """A file of numpy; objects, which would be unpickled, are refused."""
    try:
        with np.errstate(over="raise"):  # the sizes of a shape may overflow
            stored = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error}); name a file that is there") from error
    except Exception as error:  # numpy evaluates the header, whose faults have many kinds
        raise ValueError(f"{path} is no whole array of numpy ({error}); save it again with numpy.save") from error
    if not isinstance(stored, np.ndarray):  # numpy reads by the content, whatever the name says
        stored.close()
        raise ValueError(f"{path} is no whole array of numpy (it is an archive, .npz); save it again with numpy.save")
    if stored.ndim not in (1, 2, 3, 4) or stored.dtype.kind not in "uif" or 0 in stored.shape:
        raise ValueError(
            f"{path} holds {stored.dtype} of shape {stored.shape}; save pictures as (frames, height, width) or "
            "(frames, height, width, channels), or a signal as (samples, channels)"
        )
    # a file may be a hole of any size on the disk
    memory.check_fits(stored.nbytes, f"{path}, an array of shape {stored.shape},", "cut it into shorter clips")
    array = np.array(stored)
    if len(array) < 2:
        raise ValueError(f"{path} has one {'sample' if array.ndim < 3 else 'frame'}, and a clip needs two; give more")
    if not np.isfinite(array).all():
        raise ValueError(f"{path} has values that are not finite; fill in numbers")
    if array.ndim < 3:
        return array.reshape(len(array), -1).astype(np.float32)
    return _resized(_pixels(path, array), size, mode)


def _pixels(path: Path, array: NDArray[np.generic]) -> NDArray[np.uint8]:  # -> "t h w c"
    """Bytes as they are, and numbers from 0 to 1 as bytes."""
    array = array[..., None] if array.ndim == 3 else array
    if array.shape[-1] not in (1, 3):
        raise ValueError(
            f"{path} has frames of {array.shape[-1]} channels, and 1 or 3 are read; the shape {array.shape} should be "
            "(frames, height, width, channels)"
        )
    if array.dtype == np.uint8:
        return array  # type: ignore[return-value]
    low, high = float(array.min()), float(array.max())
    if array.dtype.kind != "f" or low < 0 or high > 1:
        raise ValueError(
            f"{path} has {array.dtype} from {low:g} to {high:g}; save pictures as uint8, or as numbers from 0 to 1"
        )
    return np.rint(np.asarray(array, np.float64) * 255).astype(np.uint8)


def _resized(frames: NDArray[np.uint8], size: tuple[int, int] | None, mode: str | None) -> NDArray[np.uint8]:
    if mode is None and (size is None or size == frames.shape[2:0:-1]):
        return frames
    from PIL import Image

    resized = []
    for frame in frames:
        image = Image.fromarray(frame[..., 0] if frame.shape[-1] == 1 else frame)
        image = image if mode is None or image.mode == mode else image.convert(mode)
        image = image if size is None else image.resize(size, Image.Resampling.BILINEAR)
        resized.append(np.atleast_3d(np.array(image, np.uint8)))
    return np.stack(resized)
