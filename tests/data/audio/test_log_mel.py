"""Log-mel features against those of transformers, against a loop, and piece by piece."""

import math

import numpy as np
import pytest
import torch
from transformers.audio_utils import mel_filter_bank, spectrogram, window_function

from regard.data.audio.log_mel import MelBands, log_mel


@pytest.mark.parametrize(("rate", "mels"), [(8000, 40), (16000, 23)])
def test_like_those_of_transformers(rate: int, mels: int) -> None:
    bands = MelBands(rate, mels)
    samples = np.random.default_rng(0).normal(size=2 * rate // 5) * np.linspace(0, 1, 2 * rate // 5)
    size = 256 if rate == 8000 else 512
    filters = mel_filter_bank(size // 2 + 1, mels, 0.0, rate / 2, rate, norm=None, mel_scale="htk")
    theirs = spectrogram(
        samples,
        window_function(bands.window, "hann"),
        bands.window,
        bands.hop,
        fft_length=size,
        power=2.0,
        center=False,
        mel_filters=filters,
        mel_floor=1e-10,
        log_mel="log",
    )
    mine = log_mel(torch.from_numpy(samples), bands)
    assert mine.shape == (bands.frames(len(samples)), mels)
    np.testing.assert_allclose(mine, theirs.T, atol=1e-4)
    np.testing.assert_allclose(log_mel(torch.from_numpy(samples).float(), bands), theirs.T, atol=1e-4)


def test_frames_are_the_formula() -> None:
    bands, samples = MelBands(1000, 3), torch.randn(61, dtype=torch.float64)
    frames = log_mel(samples, bands)
    assert len(frames) == 1 + (61 - 25) // 10
    for t, frame in enumerate(frames):
        window = [samples[10 * t + n] * (0.5 - 0.5 * math.cos(2 * math.pi * n / 25)) for n in range(25)]
        power = [
            abs(
                sum(
                    window[n] * complex(math.cos(a), -math.sin(a))
                    for n in range(25)
                    for a in [2 * math.pi * k * n / 32]
                )
            )
            ** 2
            for k in range(17)
        ]
        corners = [700 * (10 ** (m * math.log10(1 + 500 / 700) / 4) - 1) for m in range(5)]
        for m in range(3):
            low, middle, high = corners[m : m + 3]
            weight = [
                max(0.0, min((f - low) / (middle - low), (high - f) / (high - middle)))
                for f in [500 * k / 16 for k in range(17)]
            ]
            assert math.isclose(
                frame[m], math.log(sum(w * p for w, p in zip(weight, power, strict=True))), abs_tol=1e-10
            )


def test_a_part_of_the_sound_has_a_part_of_the_frames() -> None:
    bands, samples = MelBands(8000, 11), torch.randn(2000)
    whole = log_mel(samples, bands)
    torch.testing.assert_close(log_mel(samples[: 5 * 80 + 200], bands), whole[:6])
    torch.testing.assert_close(log_mel(samples[3 * 80 :], bands), whole[3:])
    torch.testing.assert_close(log_mel(torch.stack([samples, samples]), bands)[1], whole)
    assert bands.frames(199) == 0
    assert log_mel(torch.zeros(200), bands).isfinite().all(), "silence"


def test_impossible_bands() -> None:
    with pytest.raises(ValueError, match="rate must be 1000 samples per second or more, got 8; try rate=8000"):
        MelBands(8)
    with pytest.raises(ValueError, match="mels must be 1 or more, got 0; try mels=40"):
        MelBands(8000, 0)
