"""Signals: a tone where the interval says, a louder decoy elsewhere, and samples that show nothing."""

import numpy as np

from regard.data.embedded.clips.signals import COURSES, DECOY, LENGTHS, NOISE, PATTERN, signals


def test_the_pattern_is_in_the_interval_and_the_decoy_is_louder() -> None:
    clips = signals("test", 0, 400)
    assert clips.classes == tuple(COURSES)
    assert {len(clip) for clip in clips.clips} <= set(range(LENGTHS[0], LENGTHS[1] + 1))
    outside = []
    for clip, (start, end) in zip(clips.clips, clips.intervals.tolist(), strict=True):
        assert PATTERN[0] <= end - start <= PATTERN[1]
        assert 0 <= start < end <= len(clip)
        inside = float(np.square(clip[start:end]).mean())
        rest = np.square(np.delete(clip[:, 0], np.s_[start:end]))
        assert inside > 2 * NOISE**2
        loudest = np.convolve(rest, np.ones(DECOY[0]) / DECOY[0], "valid").max()
        outside.append(loudest / inside)
    assert np.mean(outside) > 2


def test_a_sample_of_a_pattern_is_as_likely_in_every_class() -> None:
    clips = signals("train", 0, 4000)
    spreads = []
    for label in range(len(clips.classes)):
        rows = np.flatnonzero(clips.labels == label)
        values = np.concatenate([clips.clips[n][slice(*clips.intervals[n]), 0] for n in rows])
        assert abs(values.mean()) < 0.03
        spreads.append(values.std())
    assert max(spreads) / min(spreads) < 1.02
