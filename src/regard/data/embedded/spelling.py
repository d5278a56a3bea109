"""Spoken spelling: every letter of a word as a formant pattern, with random pitch, speed, voice and noise.  No torch.

A letter has two formants. Nine pairs of them, each with a second formant that stays, rises or falls, are 27 patterns:
one letter cannot be told from a moment of its sound alone. A voice is a train of pulses, whose pitch is independent of
the letter; its formants are scaled together, as by the length of a vocal tract. A short pause stands between letters,
so that two equal letters are two, and a longer one between words.

The words are those of the Python manual. Those of validation and test are in no training utterance, and neither are
their pitches, nor the colours and levels of their noise: these lie in bands that are left out in training.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from string import ascii_lowercase

import numpy as np
from numpy.typing import NDArray

from regard.data.embedded import manual
from regard.data.embedded._generated import hashed_split
from regard.data.splitting import Split

RATE = 8000
ALPHABET = " " + ascii_lowercase
# letters of a word, and the letters that the words of an utterance reach: any word may be the last one
_LETTERS, _UTTERANCE = (2, 8), (3, 16)
# the bands of a range that a split draws from, by their number modulo 4
_BANDS, _BAND_NUMBERS = 16, {"train": (0, 2), "valid": (1,), "test": (3,)}

# frequencies in hertz
_FIRST, _SECOND = (300.0, 550.0, 850.0), (1200.0, 1800.0, 2600.0)
_BANDWIDTHS = (90.0, 140.0)
# the factors by which the second formant moves during a letter: it stays, rises or falls
_GLIDES = (1.0, 1.35, 0.74)
_PITCH = (90.0, 250.0)
# the decibels of the voice above the noise, and the exponent of the noise's spectrum: 0 is white, 2 brown
_LEVEL, _COLOUR = (10.0, 30.0), (0.0, 2.0)
# durations in seconds, before the speed of the speaker
_LETTER, _PAUSE, _WORD_PAUSE, _EDGE = (0.09, 0.15), (0.03, 0.06), (0.14, 0.2), (0.05, 0.15)
_SPEED, _TRACT, _VOLUME = (0.8, 1.25), (0.93, 1.07), (0.05, 0.3)
# the time in which a letter fades in and out, in seconds
_FADE = 0.008
# samples of a transform, more than the longest letter has
_TRANSFORM = 2048


@dataclass(frozen=True, eq=False)
class Utterance:
    """Spoken letters, and where each of them ends."""

    samples: NDArray[np.float32]  # "n", between −1 and 1
    text: str
    ends: NDArray[np.float64]  # "letters", in seconds; of a space, the end of its pause


@cache
def words(split: Split) -> tuple[str, ...]:
    """The words of a split, in alphabetical order; a word has the same split in every version of the manual."""
    low, high = _LETTERS
    words = {word for text in manual.documents() for word in re.findall(r"(?<![\w'])[a-z]+(?![\w'])", text)}
    return tuple(sorted(word for word in words if low <= len(word) <= high and hashed_split(word) == split))


def spelled_text(split: Split, rng: np.random.Generator, times: int = 1) -> str:
    """Random words of a split, about `times` as long as a training utterance."""
    if split not in _BAND_NUMBERS:
        raise ValueError(f"split must be one of {', '.join(_BAND_NUMBERS)}, got {split!r}; only these are spoken")
    if times < 1:
        raise ValueError(f"times must be 1 or more, got {times}; times=2 speaks twice as long")
    pool, text = words(split), ""
    letters = times * int(rng.integers(_UTTERANCE[0], _UTTERANCE[1] + 1))
    while len(text) < letters:
        text = f"{text} {pool[int(rng.integers(len(pool)))]}".lstrip()
    return text


def utterance(split: Split, seed: Sequence[int], times: int = 1) -> Utterance:
    """A random utterance of a split, a pure function of its arguments: `spelled_text` of `voice`, and its sound."""
    rng = voice(split, seed)
    return speak(spelled_text(split, rng, times), rng, split)


def voice(split: Split, seed: Sequence[int]) -> np.random.Generator:
    """The generator of the words and of the sound of an utterance."""
    return np.random.default_rng([list(_BAND_NUMBERS).index(split), *seed])


def expected_seconds(text: str) -> float:
    """The mean length of the sound of a text over all voices."""
    spaces = text.count(" ")
    slowness = np.log(_SPEED[1] / _SPEED[0]) / (_SPEED[1] - _SPEED[0])
    sounds = (len(text) - spaces) * (np.mean(_LETTER) + np.mean(_PAUSE)) + spaces * np.mean(_WORD_PAUSE)
    return float(2 * np.mean(_EDGE) + slowness * sounds)


def speak(text: str, rng: np.random.Generator, split: Split = "train") -> Utterance:
    """These letters by a random voice of a split."""
    if not text or set(text) - set(ALPHABET):
        raise ValueError(f"text must be letters from a to z and spaces, got {text[:40]!r}; spell it with these")
    pitch = np.exp(_banded(rng, split, np.log(_PITCH[0]), np.log(_PITCH[1])))
    speed, tract = rng.uniform(*_SPEED), rng.uniform(*_TRACT)
    parts, ends, time = [np.zeros(round(rng.uniform(*_EDGE) * RATE))], [], 0.0
    for letter in text:
        time = sum(map(len, parts)) / RATE
        if letter == " ":
            parts.append(np.zeros(round(rng.uniform(*_WORD_PAUSE) / speed * RATE)))
        else:
            # every letter has a pitch of its own, near that of the voice
            sound = _letter(letter, round(rng.uniform(*_LETTER) / speed * RATE), pitch * rng.uniform(0.97, 1.03), tract)
            parts += [sound * rng.uniform(0.7, 1.0), np.zeros(round(rng.uniform(*_PAUSE) / speed * RATE))]
        ends.append(time + len(parts[-1 if letter == " " else -2]) / RATE)
    parts.append(np.zeros(round(rng.uniform(*_EDGE) * RATE)))
    voice = np.concatenate(parts)
    noise = _noise(rng, len(voice), _banded(rng, split, *_COLOUR))
    level = 10 ** (-_banded(rng, split, *_LEVEL) / 20)
    sound = voice / max(np.sqrt(np.mean(voice**2)), 1e-9) + level * noise
    samples = rng.uniform(*_VOLUME) * sound / np.abs(sound).max()
    return Utterance(samples.astype(np.float32), text, np.array(ends))


def _banded(rng: np.random.Generator, split: Split, low: float, high: float) -> float:
    """A number of the range, in a band of the split."""
    numbers = [n for n in range(_BANDS) if n % 4 in _BAND_NUMBERS[split]]
    return low + (high - low) * (numbers[int(rng.integers(len(numbers)))] + rng.random()) / _BANDS


def _letter(letter: str, length: int, pitch: float, tract: float) -> NDArray[np.float64]:
    """A train of pulses through the formants at the beginning of the letter, fading to those at its end."""
    number = ascii_lowercase.index(letter)
    pair, glide = divmod(number, len(_GLIDES))
    first, second = _FIRST[pair // 3] * tract, _SECOND[pair % 3] * tract
    pulses = np.zeros(length)
    pulses[np.arange(0, length, RATE / pitch).astype(int)] = 1.0
    start, end = second / np.sqrt(_GLIDES[glide]), second * np.sqrt(_GLIDES[glide])
    responses = np.stack([_response(first, formant) for formant in ((start, end) if glide else (second,))])
    sounds = np.fft.irfft(np.fft.rfft(pulses, _TRANSFORM) * responses, _TRANSFORM)[:, :length]
    share = np.linspace(0, 1, length)
    fade = np.minimum(np.arange(length), np.arange(length)[::-1]) / (_FADE * RATE)
    return (sounds[0] + share * (sounds[-1] - sounds[0])) * np.minimum(fade, 1.0)


def _response(*formants: float) -> NDArray[np.float64]:
    """The gain of two resonances side by side, over a weak floor."""
    frequencies = np.fft.rfftfreq(_TRANSFORM, 1 / RATE)
    peaks = [
        1 / (1 + ((frequencies - formant) / width) ** 2) for formant, width in zip(formants, _BANDWIDTHS, strict=True)
    ]
    return peaks[0] + 0.7 * peaks[1] + 0.01


def _noise(rng: np.random.Generator, length: int, colour: float) -> NDArray[np.float64]:
    """Noise of unit power whose spectrum falls with this power of the frequency."""
    # a power of two, for a fast transform
    size = 1 << (length - 1).bit_length()
    frequencies = np.maximum(np.fft.rfftfreq(size, 1 / RATE), 50.0)
    noise = np.fft.irfft(np.fft.rfft(rng.standard_normal(size)) * frequencies ** (-colour / 2), size)[:length]
    return noise / np.sqrt(np.mean(noise**2))
