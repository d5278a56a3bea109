"""Resampling against sines, whose samples are known at any rate."""

import tracemalloc

import numpy as np
import pytest

from regard.common.cancellation import Cancellation, cancelled_if
from regard.data.audio.resampling import resample


@pytest.mark.parametrize(("rate", "to"), [(16000, 8000), (44100, 8000), (8000, 16000), (11025, 8000), (8001, 8000)])
def test_a_sine_is_the_same_sine(rate: int, to: int) -> None:
    times, new_times = np.arange(rate // 4) / rate, np.arange(-(-(rate // 4) * to // rate)) / to
    samples = np.sin(2 * np.pi * 440 * times).astype(np.float32)
    resampled = resample(samples, rate, to)
    assert resampled.shape == new_times.shape
    # at the ends the sound begins and stops
    inside = slice(200, -200)
    np.testing.assert_allclose(resampled[inside], np.sin(2 * np.pi * 440 * new_times)[inside], atol=2e-5)


def test_tones_above_half_of_the_new_rate_vanish() -> None:
    samples = np.sin(2 * np.pi * 6000 * np.arange(4000) / 16000).astype(np.float32)
    assert np.abs(resample(samples, 16000, 8000)[200:-200]).max() < 1e-4


def test_the_same_rate_changes_nothing() -> None:
    samples = np.arange(7, dtype=np.float32)
    assert resample(samples, 8000, 8000) is samples
    with pytest.raises(ValueError, match="rate and to must be 1 or more samples per second, got 8000 and 0"):
        resample(samples, 8000, 0)


def test_the_memory_does_not_grow_with_the_rate() -> None:
    """Each output sample of a high rate reads thousands of samples, a part of the outputs at a time."""
    samples = np.zeros(100_000, np.float32)
    tracemalloc.start()
    try:
        resample(samples, 500_009, 8000)
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


def test_a_sound_that_nobody_waits_for_is_given_up_between_parts() -> None:
    checks: list[int] = []
    with pytest.raises(Cancellation), cancelled_if(lambda: checks.append(1) or len(checks) == 3):
        resample(np.zeros(400_000, np.float32), 500_009, 8000)
    assert len(checks) == 3
