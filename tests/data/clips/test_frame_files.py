"""Clips from folders, animations and arrays: the same frames in the same order, and one sentence per fault."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from tests.for_each import for_each

from regard.common import image_files, memory
from regard.data.clips.files import has_split, read_clips
from regard.data.clips.frame_files import read_clip

FRAMES = np.random.default_rng(0).integers(0, 2, (3, 5, 7), np.uint8) * 255


def write_frames(folder: Path, frames: NDArray[np.uint8] = FRAMES, numbers: tuple[int, ...] = (9, 10, 11)) -> Path:
    folder.mkdir(parents=True)
    for number, frame in zip(numbers, frames, strict=True):
        Image.fromarray(frame).save(folder / f"frame{number}.png")
    return folder


def write_animation(path: Path, frames: NDArray[np.uint8] = FRAMES) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    first, *others = [Image.fromarray(frame) for frame in frames]
    first.save(path, save_all=True, append_images=others, duration=50)
    return path


def test_every_format_gives_the_same_frames(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", FRAMES)
    np.save(tmp_path / "y.npy", FRAMES[..., None] / 255)
    paths = [write_frames(tmp_path / "x"), *(write_animation(tmp_path / f"x.{end}") for end in ("gif", "png"))]
    for path in (*paths, tmp_path / "x.npy", tmp_path / "y.npy"):
        clip = read_clip(path, mode="L")
        assert clip.dtype == np.uint8
        assert np.array_equal(clip, FRAMES[..., None]), path
        assert read_clip(path, size=(4, 6), mode="RGB").shape == (3, 6, 4, 3)


def test_frames_come_by_their_numbers_in_equal_steps(tmp_path: Path) -> None:
    # by name, frame5.png stands behind frame10.png
    clip = read_clip(write_frames(tmp_path / "x", numbers=(5, 10, 15)))
    assert np.array_equal(clip, FRAMES[..., None])


def test_arrays_of_one_or_two_axes_are_signals(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    np.save(tmp_path / "y.npy", np.ones((5, 2)))
    assert read_clip(tmp_path / "x.npy").tolist() == [[0], [1], [2]]
    signal = read_clip(tmp_path / "y.npy")
    assert (signal.shape, signal.dtype) == ((5, 2), np.float32)


def test_folders_of_classes_and_splits(tmp_path: Path) -> None:
    write_frames(tmp_path / "b" / "one")
    np.save(write_animation(tmp_path / "a" / "two.gif").with_name("three.npy"), FRAMES)
    clips = read_clips(tmp_path)
    assert clips.classes == ("a", "b")
    assert clips.labels.tolist() == [0, 0, 1]
    assert {clip.shape for clip in clips.clips} == {(3, 5, 7, 3)}, "grey clips become colour beside those in colour"
    assert not has_split(tmp_path, "test")
    write_frames(tmp_path / "test" / "a" / "four")
    assert has_split(tmp_path, "test")
    assert read_clips(tmp_path).classes == ("a", "b")
    assert read_clips(tmp_path, "test").classes == ("a",)
    assert read_clips(tmp_path, size=3).clips[0].shape == (3, 3, 3, 3)


def wrong_frames(folder: Path) -> dict[str, tuple[Path, str]]:
    """{fault: (path, sentence)}"""
    still = folder / "still.png"
    Image.fromarray(FRAMES[0]).save(still)
    single = write_frames(folder / "single", FRAMES[:1], (1,))
    (folder / "none").mkdir()
    sizes = write_frames(folder / "sizes")
    Image.fromarray(FRAMES[0, :4]).save(sizes / "frame12.png")
    gap = write_frames(folder / "gap", numbers=(1, 2, 4))
    double = write_frames(folder / "double")
    Image.fromarray(FRAMES[0]).save(double / "frame09.png")
    unnumbered = write_frames(folder / "unnumbered")
    Image.fromarray(FRAMES[0]).save(unnumbered / "last.png")
    cut = folder / "cut.gif"
    cut.write_bytes(write_animation(folder / "whole.gif").read_bytes()[:-60])
    empty = folder / "empty.gif"
    empty.write_bytes(b"")
    (folder / "x.mp4").write_bytes(b"")
    return {
        "still": (still, "has one frame, and a clip needs two; name an animated GIF or PNG, or a folder of two or"),
        "single": (single, "has one frame, and a clip needs two"),
        "none": (folder / "none", "has no frame, and a clip needs two"),
        "sizes": (sizes, "frame12.png is 7 × 4, .*frame9.png 7 × 5; give size, such as size=32, to make them"),
        "gap": (gap, "has frame 4 behind frame 2, but frames must follow in equal steps; add those that are missing"),
        "double": (double, "frame9.png and .*frame09.png are both frame 9; take one of them out"),
        "unnumbered": (unnumbered, "last.png has no number in its name, by which frames are ordered; name it like"),
        "cut": (cut, "cut.gif cannot be read as a picture"),
        "empty": (empty, "empty.gif cannot be read as a picture"),
        "missing": (folder / "missing.gif", "there is no file .*missing.gif"),
        "video": (folder / "x.mp4", "x.mp4 is no clip; name an animated GIF or PNG, .*, or an array, .npy"),
    }


def test_wrong_frames(tmp_path: Path) -> None:
    for path, sentence in wrong_frames(tmp_path).values():
        with pytest.raises(ValueError, match=sentence):
            read_clip(path)


@for_each(
    ("array", "sentence"),
    [
        (np.zeros((2, 3, 4, 5), np.uint8), "has frames of 5 channels, and 1 or 3 are read"),
        (np.zeros((2, 3, 4), np.int64), "has int64 from 0 to 0; save pictures as uint8, or as numbers from 0 to 1"),
        (np.full((2, 3, 4), 1.5), "has float64 from 1.5 to 1.5; save pictures"),
        (np.zeros((1, 3, 4), np.uint8), "has one frame, and a clip needs two; give more"),
        (np.zeros(1), "has one sample, and a clip needs two; give more"),
        (np.zeros((2, 0, 4), np.uint8), r"holds uint8 of shape \(2, 0, 4\); save pictures as \(frames, height"),
        (np.array(["a", "b"]), r"holds <U1 of shape \(2,\)"),
        (np.array([1.0, np.nan]), "has values that are not finite; fill in numbers"),
        (np.array([{}, {}]), r"is no whole array of numpy \(.*\); save it again with numpy.save"),
    ],
)
def test_wrong_arrays(tmp_path: Path, array: np.ndarray, sentence: str) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(ValueError, match=f"x.npy {sentence}"):
        read_clip(tmp_path / "x.npy")


def test_arrays_that_are_not_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    with pytest.raises(ValueError, match=r"x.npy cannot be read \(No such file or directory\); name a file that is"):
        read_clip(path)
    np.save(path, np.zeros((2, 30, 40), np.uint8))
    whole = path.read_bytes()
    shapes = [whole.replace(b"(2, 30, 40)", shape) for shape in (b"(2, -30, 4)", b"(2, 30, 40 ", b"(9**9**9, )")]
    for part in (b"", whole[:5], whole[:100], whole[:-1], *shapes):
        path.write_bytes(part)
        with pytest.raises(ValueError, match="x.npy is no whole array of numpy"):
            read_clip(path)


def test_wrong_folders(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no clips in one folder per class; put folders of numbered frames"):
        read_clips(tmp_path)
    write_frames(tmp_path / "a" / "one")
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match="b holds no clip; put one there, or take the folder out"):
        read_clips(tmp_path)
    np.save(tmp_path / "b" / "x.npy", np.zeros((4, 2)))
    with pytest.raises(ValueError, match="x.npy holds a signal, and .*one pictures; give one kind"):
        read_clips(tmp_path)
    np.save(tmp_path / "b" / "x.npy", np.zeros((4, 2, 3), np.uint8))
    with pytest.raises(ValueError, match="x.npy is 3 × 2, .*one 7 × 5; give size, such as size=32, to make them alike"):
        read_clips(tmp_path)
    Image.fromarray(FRAMES[0]).save(tmp_path / "b" / "1.jpg")
    with pytest.raises(ValueError, match="1.jpg is a picture where clips of the class b are expected; put the frames"):
        read_clips(tmp_path)
    np.save(write_signal(tmp_path / "signals" / "a") / "x.npy", np.zeros((4, 2)))
    with pytest.raises(ValueError, match="y.npy has 1 channels, and .*x.npy 2; give all signals the same"):
        read_clips(tmp_path / "signals")


def write_signal(folder: Path) -> Path:
    folder.mkdir(parents=True)
    np.save(folder / "y.npy", np.zeros(3))
    return folder


def test_an_animation_that_does_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_animation(tmp_path / "x.gif")
    monkeypatch.setattr(memory, "available_bytes", lambda: 300)
    with pytest.raises(ValueError, match=r"x.gif, with 3 frames, takes at least 0.0 MB of memory, and 0.0 MB are"):
        image_files.read_frames(path)


def test_an_archive_is_no_array(tmp_path: Path) -> None:
    """numpy reads by the content, whatever the name says."""
    np.savez(tmp_path / "x.npz", a=np.zeros(3))
    (tmp_path / "x.npz").rename(tmp_path / "x.npy")
    with pytest.raises(ValueError, match=r"x.npy is no whole array of numpy \(it is an archive, .npz\); save it again"):
        read_clip(tmp_path / "x.npy")


def test_an_array_beyond_the_memory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """A hole of 4 TB on the disk, which takes no space there."""
    path = tmp_path / "x.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (10**6, 10**3, 10**3)}
        )
        file.truncate(file.tell() + 4 * 10**12)
    with pytest.raises(ValueError, match=r"x.npy, an array of shape .* takes at least 4.0 TB of memory"):
        read_clip(path)
