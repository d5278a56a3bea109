"""SpecAugment: masks of whole frames and of whole bands, drawn anew for every epoch."""

import numpy as np
from torch import Tensor


def spec_augment(
    frames: Tensor, rng: np.random.Generator, *, masks: int, max_frames: int, max_bands: int
) -> Tensor:  # "t m" -> "t m"
    """`masks` masks of up to `max_frames` frames and as many of up to `max_bands` bands, set to 0  (Park et al. 2019).

    The features have a mean of 0, so that a mask is as loud as the mean. At most half of the frames are masked at once.
    """
    masked = frames.clone()
    for _ in range(masks):
        for axis, most in ((0, min(max_frames, len(frames) // 2)), (1, min(max_bands, frames.shape[1]))):
            width = int(rng.integers(most + 1))
            start = int(rng.integers(frames.shape[axis] - width + 1))
            masked.narrow(axis, start, width).zero_()
    return masked
