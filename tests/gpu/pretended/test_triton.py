"""`explain` names Triton's kernels on a GPU, and why no call chooses them."""

from unittest import mock

import torch

import regard
from regard.kernels import triton


def test_explain_says_that_nobody_has_measured_it() -> None:
    q = torch.randn(2, 3, 5, 8, device="cuda")
    patches = {"target_of": lambda device: "sm_90", "_is_installed": lambda: True}
    with mock.patch.multiple(triton, **patches):
        said = regard.explain(q, q, normalize=regard.Sparsemax())
        forced = regard.explain(q, q, normalize=regard.Sparsemax(), backend="triton")
    assert "triton   could, but nobody has measured it on this device; run make bench-gpu" in said
    assert "triton   runs: Triton kernels" in forced
