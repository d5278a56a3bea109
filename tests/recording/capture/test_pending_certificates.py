"""Certificates that are computed together: the same numbers, for every map, at the latest when the model has run."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.recording.capture import pending_certificates
from regard.recording.capture.certificate import certify
from regard.recording.capture.tensor_store import TensorStore

B, H, Q, K, D = 2, 3, 5, 7, 11


class Call(nn.Module):
    """One attention, whose output and values are overwritten as soon as they were used."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        values = v.clone()
        out = F.scaled_dot_product_attention(q, k, values, **kwargs)
        used = out.clone()
        out.zero_()
        values.zero_()
        return used, v


class Calls(nn.Module):
    """Calls of several forms, each twice."""

    def __init__(self) -> None:
        super().__init__()
        allowed = torch.rand(B, 1, Q, K) > 0.3
        allowed[..., 0] = True
        self.forms: list[dict[str, Any]] = [
            {},
            {"scale": 0.5},
            {"attn_mask": allowed},
            {"attn_mask": allowed[0, 0]},
            {"is_causal": True},
            {"attn_mask": torch.randn(Q, K)},
            {"enable_gqa": True},
        ]
        self.calls = nn.ModuleList(Call() for _ in range(2 * len(self.forms)))

    def forward(self, ends: bool = True) -> list[tuple[Tensor, Tensor]]:
        results = []
        for n, call in enumerate(self.calls):
            form = self.forms[n // 2]
            shared = 1 if "enable_gqa" in form else H
            q, k, v = torch.randn(B, H, Q, D), torch.randn(B, shared, K, D), torch.randn(B, shared, K, D)
            results.append(call(q, k, v, form))
        if not ends:
            raise RuntimeError("the model ends early")
        return results


@pytest.fixture
def model() -> Calls:
    torch.manual_seed(0)
    return Calls()


@pytest.mark.parametrize("tolerance", [None, 1e-3])
def test_certificates_equal_those_of_single_maps(model: Calls, tolerance: float | None) -> None:
    with torch.no_grad(), regard.record(model, tolerance=tolerance) as recording:
        results = model()
        # the model has run, the block has not ended
        assert all(one.verified for one in recording.maps)
    assert len(recording) == len(results)
    for one, (out, v) in zip(recording, results, strict=True):
        certificate, bound = certify(one.weights, v, out, tolerance=tolerance)
        assert one.certificate == pytest.approx(certificate, abs=1e-6)
        if tolerance is not None:
            assert one.tolerance == bound == tolerance


def test_one_wrong_map_among_equal_ones_is_not_verified(model: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = TensorStore.copy

    def wrong(self: TensorStore, role: str, t: Tensor, name: str) -> Tensor:
        copy = plain(self, role, t, name)
        return copy.flip(-2) if name == "calls.1" and role == "queries" else copy

    monkeypatch.setattr(TensorStore, "copy", wrong)
    with torch.no_grad(), regard.record(model) as recording:
        model()
    assert [one.name for one in recording if not one.verified] == ["calls.1"]


def test_rows_and_heads_are_certified_too(model: Calls) -> None:
    with torch.no_grad(), regard.record(model, rows=[4, 1], heads=[2, 0]) as recording:
        model()
    assert all(one.verified and one.shape == (B, 2, 2, K) for one in recording)


def test_many_bytes_are_certified_before_the_model_ends(model: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_certificates, "_MOST", 1)
    verified: list[bool] = []
    with torch.no_grad(), regard.record(model) as recording:
        model.calls[-1].register_forward_hook(lambda *_: verified.extend(one.verified for one in recording.maps))
        model()
    assert len(verified) == len(recording)
    assert all(verified)


def test_maps_of_a_model_that_failed_have_certificates(model: Calls) -> None:
    with pytest.raises(RuntimeError, match="the model ends early"), torch.no_grad(), regard.record(model) as recording:
        model(ends=False)
    assert len(recording) == len(model.calls)
    assert all(one.verified for one in recording)


def test_under_inference_mode_and_autocast(model: Calls) -> None:
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), regard.record(model) as recording:
        model()
    assert all(one.verified for one in recording)
