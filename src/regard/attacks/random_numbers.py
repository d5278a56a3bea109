"""Random numbers of a stochastic model under attack."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def own_random_numbers(device: torch.device, seed: int) -> Iterator[None]:
    """Random numbers of a stochastic model come from the seed, and those of the caller go on afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield
