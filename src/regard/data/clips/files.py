"""Labelled clips from a path: a folder per class, or a file of signals.  No torch here."""

from pathlib import Path

import numpy as np

from regard.common import image_files
from regard.data.clips import frame_files, signal_files
from regard.data.clips.labelled import Clip, Clips
from regard.data.images.labelled import check_one_size
from regard.data.splitting import split_folder

_SPLITS = ("train", "test")
# the files of the UCR archive: Coffee_TRAIN.tsv and Coffee_TEST.tsv
_TRAIN, _TEST = "_TRAIN", "_TEST"


def read_clips(path: Path, split: str = "train", size: int | None = None) -> Clips:
    """The clips of a path: a file of signals, or a folder, or its folder `split`, with one folder of clips per class.

    A clip is a folder of numbered frames, an animated GIF or PNG, or an array, .npy. `size` is the width and height
    that pictures are resized to.
    """
    if path.is_dir():
        folder = split_folder(path, split) or path
        return _class_folders(folder, size, but=_SPLITS if folder == path else ())
    if not path.exists():
        raise ValueError(f"there is no {path}; name a folder of clips, or a file of signals")
    if path.suffix.lower() not in signal_files.SUFFIXES:
        raise ValueError(
            f"{path} is no file of signals ({', '.join(signal_files.SUFFIXES)}); name one, or a folder of clips"
        )
    if size is not None:
        raise ValueError(f"size={size} is for pictures, and {path} holds signals; leave it out")
    return labelled_signals(path if split == "train" else test_file(path) or path)


def has_split(path: Path, split: str) -> bool:
    """Whether a path has a split of its own: a folder, or to test on a file …_TEST beside …_TRAIN."""
    return split_folder(path, split) is not None or (split == "test" and test_file(path) is not None)


def test_file(path: Path) -> Path | None:
    """The file of the UCR archive with the signals to test on, if there is one."""
    if not path.stem.endswith(_TRAIN):
        return None
    beside = path.with_name(path.stem.removesuffix(_TRAIN) + _TEST + path.suffix)
    return beside if beside.is_file() else None


def labelled_signals(path: Path) -> Clips:
    """The signals of a file, each with its class."""
    signals = signal_files.read_signals(path, labelled=True)
    classes = sorted({signal.label for signal in signals if signal.label is not None}, key=_class_order)
    labels = np.array([classes.index(signal.label or "") for signal in signals], np.int64)
    return Clips([signal.values for signal in signals], labels, tuple(classes))


def _class_order(name: str) -> tuple[float, str]:
    """Classes that are numbers come by their size."""
    try:
        return float(name), name
    except ValueError:
        return float("inf"), name


def _class_folders(folder: Path, size: int | None, but: tuple[str, ...]) -> Clips:
    names = sorted(
        path.name
        for path in folder.iterdir()
        if path.is_dir() and not path.name.startswith(".") and path.name not in but
    )
    paths = [(path, label) for label, name in enumerate(names) for path in _clip_paths(folder / name)]
    if not paths:
        raise ValueError(
            f"{folder} holds no clips in one folder per class; put folders of numbered frames, animated GIF or PNG, or "
            ".npy files into folders that name their classes"
        )
    for label, name in enumerate(names):
        if all(label != each for _, each in paths):
            raise ValueError(f"{folder / name} holds no clip; put one there, or take the folder out")
    clips = [frame_files.read_clip(path, size=None if size is None else (size, size)) for path, _ in paths]
    _check_alike(clips, [path for path, _ in paths])
    if len({clip.shape[-1] for clip in clips}) > 1:  # grey and colour
        clips = [np.repeat(clip, 3, -1) if clip.shape[-1] == 1 else clip for clip in clips]
    return Clips(clips, np.array([label for _, label in paths], np.int64), tuple(names))


def _clip_paths(folder: Path) -> list[Path]:
    """The clips of a class: folders and files."""
    frames = [path for path in folder.iterdir() if path.suffix.lower() in image_files.SUFFIXES and path.is_file()]
    still = [path for path in frames if path.suffix.lower() not in frame_files.ANIMATED]
    if still:
        raise ValueError(
            f"{still[0]} is a picture where clips of the class {folder.name} are expected; put the frames of every "
            f"clip into a folder of their own, such as {folder / 'clip-1' / still[0].name}"
        )
    suffixes = (*frame_files.ANIMATED, frame_files.ARRAY)
    return sorted(
        path
        for path in folder.iterdir()
        if not path.name.startswith(".") and (path.is_dir() or path.suffix.lower() in suffixes)
    )


def _check_alike(clips: list[Clip], paths: list[Path]) -> None:
    """Raises unless all are pictures of one size, or signals with as many channels."""
    first = clips[0]
    for path, clip in zip(paths, clips, strict=True):
        if clip.ndim != first.ndim:
            kinds = [("a signal" if each.ndim == 2 else "pictures") for each in (clip, first)]
            raise ValueError(f"{path} holds {kinds[0]}, and {paths[0]} {kinds[1]}; give one kind")
        if clip.ndim == 2 and clip.shape[1] != first.shape[1]:
            raise ValueError(
                f"{path} has {clip.shape[1]} channels, and {paths[0]} {first.shape[1]}; give all signals the same"
            )
    if first.ndim == 4:
        check_one_size([clip.shape[1:3] for clip in clips], paths)
