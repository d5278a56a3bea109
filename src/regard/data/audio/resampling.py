"""Resampling: the same sound with another number of samples per second.  No torch here."""

from math import ceil, gcd

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from regard.common.cancellation import check_cancelled

# zero crossings of the filter on either side, and its cutoff as a share of the lower rate's half
_CROSSINGS, _CUTOFF = 24, 0.94
# output samples at a time, and products of samples and taps at a time
_CHUNK, _PRODUCTS = 1 << 15, 1 << 20


def resample(samples: NDArray[np.float32], rate: int, to: int) -> NDArray[np.float32]:  # "n" -> "⌈n · to / rate⌉"
    """y_n = Σ_k x_k c sinc(c (t_n − k)) w(t_n − k), t_n = n · rate / to, w a Hann window  (Smith and Gossett 1984).

    c is a little less than the lower of both rates over `rate`, so that nothing above half of it is left.
    """
    if rate < 1 or to < 1:
        raise ValueError(f"rate and to must be 1 or more samples per second, got {rate} and {to}; try to=8000")
    if rate == to:
        return samples
    up, down = to // gcd(rate, to), rate // gcd(rate, to)
    cutoff = _CUTOFF * min(1.0, to / rate)
    half = ceil(_CROSSINGS / cutoff)
    taps = np.arange(-half + 1, half + 1)
    windows = sliding_window_view(np.pad(samples, half), len(taps))
    count = -(-len(samples) * up // down)
    out = np.empty(count, np.float32)
    chunk = max(1, min(_CHUNK, _PRODUCTS // len(taps)))
    for start in range(0, count, chunk):
        check_cancelled()
        places = np.arange(start, min(start + chunk, count)) * down
        # few ratios of rates have many phases
        phases, row = np.unique(places % up, return_inverse=True)
        distance = taps - phases[:, None] / up
        filters = cutoff * np.sinc(cutoff * distance) * np.cos(np.pi * distance / (2 * half)) ** 2
        rows = windows[places // up + 1]
        out[start : start + len(places)] = np.einsum("nt,nt->n", rows, filters.astype(np.float32)[row])
    return out
