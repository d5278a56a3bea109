"""What may not be looked at is not felt: also where values may not be read, and where a query is no number."""

import pytest
import torch
from tests.for_each import for_each

import regard
from regard.attn import nonfinite

CLEAN = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(1))
LENGTHS = regard.Lengths(torch.tensor([3, 5]))


def dirty() -> torch.Tensor:
    x = CLEAN.clone()
    x[0, 3:] = torch.nan
    return x


def zeroed() -> torch.Tensor:
    x = CLEAN.clone()
    x[0, 3:] = 0.0
    return x


TERMS = {
    "softmax": {},
    "sparsemax": {"normalize": regard.Sparsemax()},
    "linear": {"score": regard.scores.Kernel(), "normalize": regard.normalizers.Sum()},
    "bilinear": {"score": regard.Bilinear(4, 4)},
    "additive": {"score": regard.Additive(4, 4, 3)},
    "euclid": {"score": regard.Distance(1)},
}


@pytest.mark.parametrize("backend", ["eager", "fused", "blocked"])
def test_a_query_that_is_no_number_spoils_its_own_row_only(backend: str) -> None:
    def slopes(x: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        q, k, v = (x.clone().requires_grad_() for _ in range(3))
        out = regard.attention(q, k, v, mask=LENGTHS, backend=backend)
        rows = torch.arange(5) < LENGTHS.lengths[:, None]
        return out, torch.autograd.grad(out[rows].square().sum(), (q, k, v))

    out, got = slopes(dirty())
    want, wanted = slopes(zeroed())
    assert torch.isnan(out[0, 3:]).all()
    torch.testing.assert_close(out[0, :3], want[0, :3])
    torch.testing.assert_close(got, wanted)


@for_each("name", TERMS)
def test_hidden_keys_where_values_may_not_be_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a device far away: nothing is looked at, what nobody may see is made zero."""
    want = regard.attention(CLEAN, zeroed(), mask=LENGTHS, **TERMS[name])
    monkeypatch.setattr(nonfinite, "values_are_readable", lambda t: False)
    got = regard.attention(CLEAN, dirty(), mask=LENGTHS, **TERMS[name])
    torch.testing.assert_close(got, want)


def test_hidden_keys_under_a_transform_and_compiled() -> None:
    def whole(q: torch.Tensor) -> torch.Tensor:
        return regard.attention(q, dirty(), mask=LENGTHS).square().sum()

    slope = torch.func.grad(whole)(CLEAN)
    assert torch.isfinite(slope).all()
    compiled = torch.compile(lambda q, k: regard.attention(q, k, mask=LENGTHS), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(CLEAN, dirty()), regard.attention(CLEAN, zeroed(), mask=LENGTHS))


@pytest.mark.parametrize("heads", [1, 2, 6])
def test_heads_that_share_keys_hide_what_is_hidden_from_all(heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nonfinite, "values_are_readable", lambda t: False)
    q, k = torch.randn(2, 6, 3, 4), torch.randn(2, heads, 5, 4)
    allowed = torch.ones(2, 6, 3, 5, dtype=torch.bool)
    allowed[0, :, :, 4] = False
    k[0, :, 4] = torch.nan
    assert torch.isfinite(regard.attention(q, k, mask=allowed)).all()
