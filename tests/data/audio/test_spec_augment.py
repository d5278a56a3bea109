"""SpecAugment: whole frames and whole bands, by the generator alone."""

import numpy as np
import torch

from regard.data.audio.spec_augment import spec_augment


def test_masks_are_frames_and_bands() -> None:
    frames = torch.ones(31, 13)
    masked = [spec_augment(frames, np.random.default_rng(n), masks=1, max_frames=7, max_bands=5) for n in range(50)]
    for each in masked:
        rows, columns = (each == 0).all(1), (each == 0).all(0)
        assert rows.sum() <= 7
        assert columns.sum() <= 5
        assert torch.equal(each == 0, rows[:, None] | columns)
        assert torch.equal(rows, _one_run(rows))
    assert {int((each == 0).all(1).sum()) for each in masked} == set(range(8))
    assert torch.equal(frames, torch.ones(31, 13)), "its input is left as it is"
    again = spec_augment(frames, np.random.default_rng(3), masks=1, max_frames=7, max_bands=5)
    assert torch.equal(again, masked[3])


def test_at_most_half_of_the_frames() -> None:
    for n in range(20):
        masked = spec_augment(torch.ones(5, 13), np.random.default_rng(n), masks=1, max_frames=99, max_bands=1)
        assert (masked == 0).all(1).sum() <= 2


def _one_run(rows: torch.Tensor) -> torch.Tensor:
    marked = rows.nonzero().flatten().tolist()
    run = torch.zeros_like(rows)
    if marked:
        run[marked[0] : marked[0] + len(marked)] = True
    return run
