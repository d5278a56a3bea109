"""Clips: values with labels and intervals, checked when they are made."""

import numpy as np
import pytest

from regard.data.clips.labelled import Clips


def test_a_selection_keeps_labels_and_intervals() -> None:
    clips = [np.full((n, 3), n, np.float32) for n in (2, 5, 3)]
    intervals = np.array([[0, 1], [2, 4], [1, 3]])
    all_clips = Clips(clips, np.array([1, 0, 1]), ("a", "b"), intervals)
    some = all_clips[np.array([2, 0])]
    assert some.lengths.tolist() == [3, 2]
    assert some.labels.tolist() == [1, 1]
    assert some.intervals.tolist() == [[1, 3], [0, 1]]
    assert some.is_signal
    assert not Clips([np.zeros((2, 3, 5, 1), np.uint8)], np.array([0]), ("a",)).is_signal


@pytest.mark.parametrize(
    ("clips", "labels", "sentence"),
    [
        ([np.zeros((2, 1), np.float32)], [0, 1], "clips must have one label each, got 1 clips and 2 labels; give as"),
        ([np.zeros((2, 1))], [0], r"signals \(samples, channels\) in float32, got \(2, 1\) in float64 for clip 0"),
        ([np.zeros((0, 1), np.float32)], [0], r"got \(0, 1\) in float32 for clip 0; convert it"),
        (
            [np.zeros((2, 1), np.float32), np.zeros((2, 3), np.float32)],
            [0, 0],
            r"the frames of all clips must have one shape, got \(3,\) for clip 1 and \(1,\) for clip 0; resize them",
        ),
        ([np.zeros((2, 1), np.float32)], [2], "labels must be from 0 to 1, got 2 for clip 0"),
    ],
)
def test_wrong_clips(clips: list[np.ndarray], labels: list[int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Clips(clips, np.array(labels), ("a", "b"))
