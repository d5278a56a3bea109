"""The k largest of long rows."""

import pytest
import torch

from regard.kernels.stable_topk import GROUP_WIDTH, stable_topk


@pytest.mark.parametrize("v", [1, 7, 20 * GROUP_WIDTH - 1, 20 * GROUP_WIDTH, 45 * GROUP_WIDTH + 13])
@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("values", [2, 300, None])
def test_best_is_a_stable_sort_cut_short(v: int, k: int, values: int | None) -> None:
    rows = torch.randn(11, v) if values is None else torch.randint(0, values, (11, v)).float()
    k = min(k, v)
    got, at = stable_topk(rows, k)
    want, there = rows.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(got, want[:, :k])
    assert torch.equal(at, there[:, :k])


def test_minus_infinity_comes_last_and_is_somewhere() -> None:
    rows = torch.full((3, 45 * GROUP_WIDTH + 13), -torch.inf)
    rows[1, 700], rows[2, -1] = 1, -1
    got, at = stable_topk(rows, 5)
    assert torch.equal(rows.gather(1, at), got)
    assert at[1, 0] == 700
    assert at[2, 0] == rows.shape[1] - 1
    assert torch.isinf(got).sum() == 13
