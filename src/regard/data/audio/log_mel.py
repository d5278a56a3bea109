"""Log-mel features: the energy of speech in bands that are as wide as the ear's, frame by frame.

    frames = log_mel(samples, MelBands(rate=8000))        "n" -> "t m"

Frame t holds the samples from t · hop on, so that no frame depends on later sound, and a growing signal has growing
frames.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

# durations in seconds
WINDOW, HOP = 0.025, 0.010
# energies below this count as silence
_FLOOR = 1e-10


@dataclass(frozen=True)
class MelBands:
    """m bands of the mel scale from 0 Hz to half the rate, over windows of 25 ms, one per 10 ms."""

    rate: int = 8000
    mels: int = 40

    def __post_init__(self) -> None:
        if self.rate < 1000:
            raise ValueError(f"rate must be 1000 samples per second or more, got {self.rate}; try rate=8000")
        if self.mels < 1:
            raise ValueError(f"mels must be 1 or more, got {self.mels}; try mels=40")

    @property
    def window(self) -> int:
        """Samples per window."""
        return round(WINDOW * self.rate)

    @property
    def hop(self) -> int:
        """Samples from one window to the next."""
        return round(HOP * self.rate)

    def frames(self, samples: int) -> int:
        """The number of whole windows in this many samples."""
        return max(0, 1 + (samples - self.window) // self.hop)


def log_mel(samples: Tensor, bands: MelBands) -> Tensor:  # "… n" -> "… t m"
    """log max(M |STFT(x)|², ε) with a Hann window and the triangular filters of the HTK mel scale."""
    size = 1 << (bands.window - 1).bit_length()
    window = torch.hann_window(bands.window, dtype=samples.dtype, device=samples.device)
    frames = samples.unfold(-1, bands.window, bands.hop) * window
    power = torch.fft.rfft(frames, size).abs().square()
    return (power @ mel_filters(bands).to(power)).clamp_min(_FLOOR).log()


@cache
def mel_filters(bands: MelBands) -> Tensor:  # -> "f m"
    """Triangles whose corners are equally far apart on the mel scale, 2595 log₁₀(1 + f / 700)."""
    size = 1 << (bands.window - 1).bit_length()
    frequencies = torch.linspace(0, bands.rate / 2, size // 2 + 1, dtype=torch.float64)
    highest = 2595 * math.log10(1 + bands.rate / 2 / 700)
    corners = 700 * (10 ** (torch.linspace(0, highest, bands.mels + 2, dtype=torch.float64) / 2595) - 1)
    rise = (frequencies[:, None] - corners[:-2]) / (corners[1:-1] - corners[:-2])
    fall = (corners[2:] - frequencies[:, None]) / (corners[2:] - corners[1:-1])
    return torch.minimum(rise, fall).clamp_min(0)
