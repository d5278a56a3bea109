"""Signals with a pattern somewhere in noise, and a decoy that is louder; no single sample shows the class.  No torch.

    rise      a tone whose pitch rises
    fall      a tone whose pitch falls
    arch      a tone whose pitch rises and falls back
    valley    a tone whose pitch falls and rises back

The phase of a tone is drawn uniformly, so a sample has the same distribution in all classes: the order shows the class.
The decoy, a burst of noise, is as likely in every class and louder than the pattern: the loudest part shows nothing.
"""

import numpy as np
from numpy.typing import NDArray

from regard.data.clips.labelled import Clips
from regard.data.embedded._generated import split_generator
from regard.data.splitting import Split

# the course of the pitch from 0, low, to 1, high, by the share of the pattern that has passed
COURSES = {
    "rise": lambda share: share,
    "fall": lambda share: 1 - share,
    "arch": lambda share: 1 - np.abs(2 * share - 1),
    "valley": lambda share: np.abs(2 * share - 1),
}
# samples of a signal, of its pattern, and of its decoy
LENGTHS, PATTERN, DECOY = (96, 160), (28, 36), (12, 20)
# cycles per sample at the lowest and highest pitch; standard deviations of the noise and of the decoy; amplitude
PITCHES, NOISE, LOUD, AMPLITUDE = (0.05, 0.25), 0.3, 1.5, 1.0
_COUNTS: dict[Split, int] = {"train": 4_000, "valid": 500, "test": 1_000}


def signals(split: Split, seed: int = 0, count: int | None = None) -> Clips:
    """Signals of one channel; the intervals are those of the patterns."""
    draw, count = split_generator(seed, split, count, _COUNTS)
    labels = np.arange(count, dtype=np.int64) % len(COURSES)
    names = list(COURSES)
    drawn = [_signal(draw, names[label]) for label in labels.tolist()]
    return Clips([signal for signal, _ in drawn], labels, tuple(names), np.array([each for _, each in drawn], np.int64))


def _signal(draw: np.random.Generator, name: str) -> tuple[NDArray[np.float32], tuple[int, int]]:
    length, pattern, decoy = (int(draw.integers(low, high + 1)) for low, high in (LENGTHS, PATTERN, DECOY))
    values = draw.normal(0, NOISE, length)
    # one of them before the other, with the rest of the samples before, between and behind
    free = np.sort(draw.integers(0, length - pattern - decoy + 1, 2))
    is_first = bool(draw.integers(2))
    start = int(free[0] if is_first else free[1] + decoy)
    quiet = int(free[1] + pattern if is_first else free[0])
    share = np.arange(pattern) / (pattern - 1)
    pitch = PITCHES[0] + (PITCHES[1] - PITCHES[0]) * COURSES[name](share)
    phase = 2 * np.pi * (np.cumsum(pitch) + draw.random())
    values[start : start + pattern] += AMPLITUDE * np.sin(phase)
    values[quiet : quiet + decoy] += draw.normal(0, LOUD, decoy)
    return values.astype(np.float32)[:, None], (start, start + pattern)
