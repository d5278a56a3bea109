"""backend="triton" where no kernel can run: it says why, and is never chosen. tests/gpu/interpreted runs kernels."""

from types import SimpleNamespace
from unittest import mock

import pytest
import torch

import regard
from regard.attn.backends import triton as backend
from regard.gates import SimAM
from regard.kernels import triton
from regard.kernels.triton import configs

from .cases import resolved

GPU = torch.device("cuda:0")


def test_a_cpu_is_refused() -> None:
    x = torch.randn(1, 2, 3, 4)
    reason = "backend 'triton' cannot run this: its kernels are for GPUs, and the tensors are on cpu; leave backend out"
    with pytest.raises(ValueError, match=reason):
        regard.attention(x, x, normalize=regard.Sparsemax(), backend="triton")
    with pytest.raises(ValueError, match=reason):
        regard.Attention(regard.Additive(4, 4, 3), backend="triton")(x, x)
    with pytest.raises(ValueError, match=reason):
        SimAM(backend="triton")(x)
    with pytest.raises(ValueError, match="did you mean 'triton'"):
        SimAM(backend="tritn")  # type: ignore[arg-type]


def test_devices_without_tiles_are_refused() -> None:
    def reason(capability: tuple[int, int] = (8, 0), installed: bool = True) -> str | None:
        triton.target_of.cache_clear()
        cuda = mock.patch.multiple(torch.cuda, get_device_capability=lambda _: capability)
        installation = mock.patch.object(triton, "_is_installed", return_value=installed)
        with cuda, installation, mock.patch.object(torch.version, "cuda", "13.0"):
            return triton.unavailable_reason(GPU)

    assert reason() is reason((9, 0)) is reason((12, 0)) is None
    assert reason((7, 5)) == "it has tiles for sm_80 and newer and for gfx942, not for sm_75"
    assert reason(installed=False) == "triton is not installed; pip install 'regard[gpu]'"
    assert triton.unavailable_reason(torch.device("mps")) == (
        "its kernels are for CUDA and ROCm, and the tensors are on mps"
    )
    triton.target_of.cache_clear()
    properties = SimpleNamespace(gcnArchName="gfx90a:sramecc+")
    with (
        mock.patch.object(torch.version, "hip", "7.0"),
        mock.patch.object(torch.cuda, "get_device_properties", return_value=properties),
    ):
        assert "not for gfx90a" in (triton.unavailable_reason(GPU) or "")
    triton.target_of.cache_clear()
    assert torch.version.cuda or triton.target_of(GPU) == "a torch without CUDA"
    triton.target_of.cache_clear()


def test_no_call_chooses_it_before_somebody_has_measured_it() -> None:
    q = torch.randn(1, 2, 3, 4)
    call = resolved(q, q, normalize=regard.Sparsemax())
    assert backend.skip_reason(call) == "nobody has measured it on this device; run make bench-gpu"


def test_every_width_has_a_tile_whose_products_tensor_cores_take() -> None:
    assert (configs.most_width("additive"), configs.most_width("sparse")) == (512, 128)
    assert [configs.padded_width(n) for n in (1, 32, 33, 100, 128)] == [32, 32, 64, 128, 128]
    for name, kinds in configs.TILES.items():
        for kind, tiles in kinds.items():
            assert list(tiles) == [32 << n for n in range(len(tiles))], (name, kind)
            for tile in tiles.values():
                assert 1 in tile[:2] or min(tile[:2]) >= 16, (name, kind, tile)
