"""The comparison of `make bench-gpu` on the pretended GPU, where its tensors are on both devices."""

import torch
from benchmarks.gpu import parity


def test_backends_of_gpus_equal_the_cpu() -> None:
    chosen = ("Lengths, an empty sample", "SimAM")
    compared = parity.compare_all(torch.device("cuda", 0), chosen=chosen, say=lambda text: None)
    assert not [str(each) for each in compared if not each.holds]
    backends = {each.name.split("/")[1] for each in compared}
    assert {"varlen", "fused", "blocked", "eager", "torch"} <= backends
