"""Spoken spelling: words, pitches and noise of a split are its own; letters end where they are said to end."""

import numpy as np
import pytest

from regard.data.embedded import spelling
from regard.data.embedded.spelling import RATE, expected_seconds, speak, spelled_text, utterance, voice, words
from regard.data.splitting import Split

SPLITS: tuple[Split, ...] = ("train", "valid", "test")


def test_no_word_is_in_two_splits() -> None:
    pools = [set(words(split)) for split in SPLITS]
    assert all(len(pool) > 100 for pool in pools)
    assert len(set.union(*pools)) == sum(map(len, pools))
    assert {letter for pool in pools for word in pool for letter in word} <= set(spelling.ALPHABET)


def test_bands_of_pitch_and_noise_are_in_one_split() -> None:
    rng = np.random.default_rng(0)
    bands = [{int(16 * spelling._banded(rng, split, 0.0, 1.0)) for _ in range(400)} for split in SPLITS]
    assert set.union(*bands) == set(range(16))
    assert sum(map(len, bands)) == 16


def test_an_utterance_is_a_function_of_its_seed() -> None:
    one, same, other = (utterance("test", (3, n)) for n in (5, 5, 7))
    np.testing.assert_array_equal(one.samples, same.samples)
    assert one.text == same.text == spelled_text("test", voice("test", (3, 5)))
    assert len(one.samples) != len(other.samples)
    assert np.abs(one.samples).max() <= 0.3
    assert set(one.text.split()) <= set(words("test"))
    longer = [[len(utterance("test", (3, n), times).text) for n in range(20)] for times in (1, 2)]
    assert 1.6 < sum(longer[1]) / sum(longer[0]) < 2.1


def test_letters_end_where_they_end() -> None:
    said = speak("abba cd", np.random.default_rng(1))
    assert len(said.ends) == 7
    assert (np.diff(said.ends) > 0.05).all()
    energy = [np.abs(said.samples[round(end * RATE) - 400 : round(end * RATE)]).mean() for end in said.ends]
    quiet = [np.abs(said.samples[round(end * RATE) + 20 : round(end * RATE) + 160]).mean() for end in said.ends]
    # the fifth is a space, behind which a letter begins
    assert all(energy[n] > 2 * quiet[n] for n in (0, 1, 2, 3, 5, 6))


def test_every_letter_sounds_unlike_every_other() -> None:
    spectra = []
    for letter in spelling.ALPHABET[1:]:
        sound = spelling._letter(letter, 1000, 120.0, 1.0)
        halves = [np.abs(np.fft.rfft(half)) for half in np.split(sound, 2)]
        spectra.append(np.concatenate([half / np.linalg.norm(half) for half in halves]))
    likeness = np.stack(spectra) @ np.stack(spectra).T / 2
    assert (likeness - np.eye(26)).max() < 0.97


def test_expected_seconds() -> None:
    lengths = [len(speak("abc de", np.random.default_rng(n)).samples) / RATE for n in range(100)]
    assert abs(np.mean(lengths) - expected_seconds("abc de")) < 0.03


def test_what_cannot_be_spoken() -> None:
    with pytest.raises(ValueError, match="text must be letters from a to z and spaces, got 'né'; spell it with these"):
        speak("né", np.random.default_rng(0))
    with pytest.raises(ValueError, match="times must be 1 or more, got 0; times=2 speaks twice as long"):
        utterance("test", (0,), 0)
    with pytest.raises(ValueError, match="split must be one of train, valid, test, got 'dev'; only these are spoken"):
        spelled_text("dev", np.random.default_rng(0))
