"""Attention written out with more rows than are checked by their output: every row is that which was used."""

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.for_each import for_each
from tests.recording.capture import test_eager
from tests.recording.capture.test_eager import Attend, B, D, H
from torch import Tensor, nn

import regard

Q, K = 101, 67


def recorded(attend: Attend, inference: bool = False) -> tuple[regard.recording.RecordedMap, Tensor]:
    return test_eager.recorded(attend, Q, K, inference)


def one_row(s: Tensor) -> None:
    s[..., 5, :] = 0.0
    s[..., 5, 7] = 50.0


def some_cells(s: Tensor) -> None:
    hidden = torch.zeros(s.shape, dtype=torch.bool)
    hidden[..., 52, 3:40] = True
    s[hidden] = -1e9


def a_view(s: Tensor) -> None:
    s[:, 1, 51].zero_()


def behind_the_back(s: Tensor) -> None:
    s.data[0, 2, 33].fill_(1.0)


def clamped(s: Tensor) -> None:
    s[..., 40:42, :].clamp_(max=0.1)


IN_PLACE = {
    "row": one_row,
    "cells": some_cells,
    "view": a_view,
    "data": behind_the_back,
    "clamp": clamped,
}


@for_each(("name", "inference"), itertools.product(IN_PLACE, (False, True)))
def test_scores_written_in_place(name: str, inference: bool) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        s = q @ k.mT * 0.3
        IN_PLACE[name](s)
        w = s.softmax(-1)
        return w, w @ v

    one, weights = recorded(attend, inference)
    assert one.verified
    torch.testing.assert_close(one.weights.dense(), weights, rtol=0.0, atol=1e-6)


@for_each("written", ["queries", "weights"])
def test_queries_or_weights_written_after_their_product(written: str) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        q = q.clone()
        w = (q @ k.mT).softmax(-1)
        (q if written == "queries" else w)[..., 50, :] = 1.0 / K
        return w, w @ v

    one, weights = recorded(attend)
    torch.testing.assert_close(one.weights.dense(), weights, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("where", ["scores", "weights"])
def test_what_is_expanded_runs_as_it_would(where: str) -> None:
    class Expanded(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            s = q @ k.mT
            if where == "scores":
                return s.expand(3, -1, -1, -1).softmax(-1) @ v
            return s.softmax(-1).expand(3, -1, -1, -1) @ v

    model = Expanded()
    q, k, v = torch.randn(2, Q, D), torch.randn(2, K, D), torch.randn(2, K, D)
    want = model(q, k, v)
    with regard.record(model) as tape:
        assert torch.equal(model(q, k, v), want)
    (one,) = tape
    assert one.shape == (3, 2, Q, K)
    assert one.verified
    torch.testing.assert_close(one.weights.dense()[2], (q @ k.mT).softmax(-1), rtol=0.0, atol=1e-6)


def test_what_cannot_be_followed_does_not_stop_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.recording.capture import eager

    def fails(*args: object) -> None:
        raise RuntimeError("no way to follow")

    for name in ("reshape_scores", "attention_call", "keeps_last", "as_number", "can_broadcast"):
        monkeypatch.setattr(eager, name, fails)

    class Odd(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            s = (q @ k.mT * 0.5 + torch.ones(K)).reshape(B * H, Q, K)
            return torch.bmm(s.softmax(-1), v.flatten(0, 1))

    model, given = Odd(), [torch.randn(B, H, n, D) for n in (Q, K, K)]
    want = model(*given)
    with pytest.warns(UserWarning, match="record found"), regard.record(model):
        assert torch.equal(model(*given), want)


def masked_heads(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    w = (q @ k.mT).softmax(-1) * torch.tensor([1.0, 0.0, 0.5]).view(H, 1, 1)
    return w, w @ v


def shares(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    w = (q @ k.mT).softmax(-1)[..., 2:40, : K - 1]
    w = w / w.sum(-1, keepdim=True)
    return w, w @ v[..., : K - 1, :]


def sinks(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    sink = torch.ones(H, 1, 1).expand(B, H, Q, 1)
    w = torch.cat([q @ k.mT, sink], -1).softmax(-1)[..., :-1]
    return w, w @ v


def keywords(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    w = torch.softmax(input=torch.matmul(other=k.mT, input=q), dim=-1)
    return w, torch.matmul(input=w, other=v)


def keys_first(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    w = (k @ q.mT + torch.arange(K, dtype=torch.float32).unsqueeze(-1)).softmax(-2).mT
    return w, w @ v


def keys_first_values_before(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    w = (k @ q.mT).softmax(-2)
    return w.mT, v.mT @ w


def dropped_and_masked(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    w, heads = (q @ k.mT).softmax(-1), torch.tensor([1.0, 0.0, 0.5]).view(H, 1, 1)
    return w * heads, (F.dropout(w, 0.3) * heads) @ v


@for_each("attend", [masked_heads, shares, sinks, keywords, keys_first, keys_first_values_before, dropped_and_masked])
def test_weights_are_followed_to_their_product(attend: Attend) -> None:
    one, weights = recorded(attend)
    assert one.verified
    torch.testing.assert_close(one.weights.dense(), weights, rtol=0.0, atol=1e-6)
    followed = attend in (keywords, keys_first, keys_first_values_before)
    assert (type(one.weights).__name__ == "LazyMap") == followed


def test_weights_before_dropout_are_certified_by_those_that_were_left() -> None:
    def dropped(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        w = torch.tanh(q @ k.mT).softmax(-1)
        return w, F.dropout(w, 0.5) @ v

    def other(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        w = torch.tanh(q @ k.mT).softmax(-1)
        left = F.dropout(w, 0.5)
        left[..., 50, :] = 1.0 / K  # which is not what dropout leaves of them
        return w, left @ v

    one, weights = recorded(dropped)
    assert one.verified
    assert one.captured_from == "softmax before dropout"
    torch.testing.assert_close(one.weights.dense(), weights, rtol=0.0, atol=1e-6)
    assert not recorded(other)[0].verified


def test_a_table_that_is_mixed_is_no_attention() -> None:
    class Router(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.route = nn.Parameter(torch.randn(6, D)), nn.Linear(D, 6)

        def forward(self, x: Tensor) -> Tensor:
            a = x @ x.mT
            return self.route(x).softmax(-1) @ self.table + a.softmax(-1) @ x

    with regard.record(model := Router()) as tape:
        model(torch.randn(Q, D))
    assert [one.shape for one in tape] == [(Q, Q)]


class Written(nn.Module):
    """The weights of one query, "b k", and the context that a tutorial computes by them."""

    def __init__(self, context: Callable[[Tensor, Tensor], Tensor], dropout: float = 0.0) -> None:
        super().__init__()
        self.energy, self.context, self.dropout = nn.Linear(7, 1), context, nn.Dropout(dropout)

    def forward(self, keys: Tensor) -> Tensor:  # "b k d"
        return self.context(self.dropout(self.energy(keys).squeeze(-1).softmax(-1)), keys)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize(
    "context",
    [
        lambda a, keys: torch.bmm(a[:, None], keys)[:, 0],
        lambda a, keys: torch.bmm(a[:, None, :], keys)[:, 0],
        lambda a, keys: (a[..., None, :] @ keys).squeeze(-2),
        lambda a, keys: torch.einsum("bt,btd->bd", a, keys),
        lambda a, keys: torch.einsum("btd,bt->db", keys, a),
    ],
)
@torch.no_grad()
def test_weights_of_one_query_are_recorded(context: Callable[[Tensor, Tensor], Tensor], dropout: float) -> None:
    model, keys = Written(context, dropout), torch.randn(2, 5, 7)
    with regard.record(model) as recording:
        model(keys)
    assert [m.shape for m in recording] == [(2, 1, 5)]
    expected = model.energy(keys).squeeze(-1).softmax(-1)
    torch.testing.assert_close(recording[0].weights.dense()[:, 0], expected)
    assert recording[0].verified


class Normalized(nn.Module):
    """Self attention by another spelling of softmax."""

    def __init__(self, normalize: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.project, self.normalize = nn.Linear(7, 21), normalize

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).chunk(3, -1)
        return self.normalize(q @ k.mT) @ v


def exp_over_sum(scores: Tensor) -> Tensor:
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True)


@pytest.mark.parametrize(
    "normalize",
    [
        lambda s: F.log_softmax(s, -1).exp(),
        lambda s: torch.exp(s - torch.logsumexp(s, -1, keepdim=True)),
        exp_over_sum,
    ],
)
@torch.no_grad()
def test_other_spellings_of_softmax_are_recorded(normalize: Callable[[Tensor], Tensor]) -> None:
    model, x = Normalized(normalize), torch.randn(2, 5, 7)
    with regard.record(model) as recording:
        model(x)
    q, k, _ = model.project(x).chunk(3, -1)
    assert [m.kind for m in recording] == ["self"]
    torch.testing.assert_close(recording[0].weights.dense(), (q @ k.mT).softmax(-1))
    assert recording[0].verified
