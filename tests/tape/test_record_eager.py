"""Attention written out: softmax, dropout, a product. And what is not attention, though it has a softmax."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard

B, H, Q, K, D = 2, 3, 5, 7, 11

Attend = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def matmul(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    w = torch.softmax(torch.matmul(q, k.transpose(-2, -1)) / D**0.5, dim=-1)
    return w, torch.matmul(w, v)


def operators(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    w = (0.3 * (q @ k.mT) + torch.arange(K) - 2.0).softmax(-1)
    return w, w @ v


def in_place(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    s = q @ k.mT
    s *= 0.3
    s += torch.arange(K, dtype=torch.float32)
    s.masked_fill_(torch.arange(K) == 3, -torch.inf)
    w = F.softmax(s, dim=-1, dtype=torch.float32).to(q.dtype)
    return w, w @ v


def masked(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    hidden = torch.ones(Q, K, dtype=torch.bool).triu(1)
    w = nn.Softmax(dim=-1)((q @ k.mT * 0.5).masked_fill(hidden, torch.finfo(q.dtype).min))
    return w, w @ v


def einsum(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # (b, n, h, d)
    w = torch.einsum("bqhd,bkhd->bhqk", q, k).div(D**0.5).softmax(dim=-1)
    return w, torch.einsum("bhqk,bkhd->bqhd", w, v)


def dotted(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    w = torch.einsum("...qd, ...kd -> ...qk", q, k).softmax(-1)
    return w, torch.einsum("...qk, ...kd -> ...qd", w, v)


def turned(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    w = torch.softmax(q @ k.mT, -1)
    return w, v.mT @ w.transpose(-1, -2)


FOLLOWED = {"matmul": matmul, "operators": operators, "in place": in_place, "masked": masked, "einsum": einsum}


def capped(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    w = torch.softmax(5.0 * torch.tanh(q @ k.mT / 5.0), -1)
    return w, w @ v


def learned(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    w = torch.softmax((q @ k.mT) * torch.rand(H, 1, 1), -1)
    return w, w @ v


def after(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    s = q @ k.mT
    s = torch.where(torch.arange(K) == 1, torch.tensor(-9.0), s)
    w = torch.softmax(s, -1)
    return w, w @ v


KEPT = {"capped": capped, "learned": learned, "where": after}


class Model(nn.Module):
    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.attend, self.weights = attend, torch.empty(0)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.weights, out = self.attend(q, k, v)
        return out


def recorded(attend: Attend) -> tuple[regard.Recorded, Tensor]:
    model = Model(attend)
    q, k, v = torch.randn(B, H, Q, D), torch.randn(B, H, K, D), torch.randn(B, H, K, D)
    torch.manual_seed(3)
    want = model(q, k, v)
    torch.manual_seed(3)
    with regard.record(model) as tape:
        got = model(q, k, v)
    assert torch.equal(want, got)
    (one,) = tape
    return one, model.weights


@pytest.mark.parametrize("name", FOLLOWED)
def test_scores_are_followed_to_queries_and_keys(name: str) -> None:
    one, weights = recorded(FOLLOWED[name])
    assert one.how == "softmax"
    assert one.verified
    assert type(one.weights).__name__ == "Computed"
    torch.testing.assert_close(one.weights.dense(), weights, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("attend", [dotted, turned])
def test_other_ways_to_write_it(attend: Attend) -> None:
    one, weights = recorded(attend)
    assert one.verified
    torch.testing.assert_close(one.weights.dense(), weights, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("name", KEPT)
def test_where_scores_cannot_be_followed_the_weights_are_kept(name: str) -> None:
    one, weights = recorded(KEPT[name])
    assert one.verified
    assert type(one.weights).__name__ == "Kept"
    torch.testing.assert_close(one.weights.dense(), weights, rtol=0.0, atol=0.0)


def test_dropout_is_no_part_of_the_map() -> None:
    def dropped(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        w = torch.softmax(q @ k.mT, -1)
        return w, F.dropout(w, 0.5) @ v

    one, weights = recorded(dropped)
    assert one.verified
    torch.testing.assert_close(one.weights.dense(), weights, rtol=0.0, atol=1e-6)


def test_heads_that_lie_with_the_samples_are_told_apart() -> None:
    class Folded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.num_heads = H

        def forward(self, x: Tensor) -> Tensor:
            q = x.unflatten(-1, (H, -1)).transpose(1, 2).reshape(B * H, Q, -1)
            bias = torch.arange(Q, dtype=torch.float32).expand(B * H, 1, Q)
            w = torch.baddbmm(bias, q, q.mT, beta=0.5, alpha=0.3).softmax(-1)
            return torch.bmm(w, q).view(B, H, Q, -1).transpose(1, 2).flatten(-2)

    model, given = Folded(), torch.randn(B, Q, H * 4)
    with regard.record(model) as tape:
        model(given)
    (one,) = tape
    assert one.shape == (B, H, Q, Q)
    assert one.verified
    assert type(one.weights).__name__ == "Computed"
    q = given.unflatten(-1, (H, -1)).transpose(1, 2)
    want = torch.softmax(0.3 * q @ q.mT + 0.5 * torch.arange(Q), -1)
    torch.testing.assert_close(one.weights.dense(), want, rtol=0.0, atol=1e-6)


def test_an_rnn_that_attends_step_by_step() -> None:
    class Decoder(nn.Module):
        def forward(self, states: Tensor, source: Tensor) -> Tensor:
            found = []
            for n in range(states.shape[1]):
                w = F.softmax((states[:, n : n + 1] * source).sum(-1), dim=-1)  # (b, k)
                found.append(torch.bmm(w.unsqueeze(1), source))
            return torch.cat(found, 1)

    model = Decoder()
    with regard.record(model) as tape:
        model(torch.randn(B, Q, D), torch.randn(B, K, D))
    assert [one.shape for one in tape] == [(B, 1, K)] * Q
    assert [one.call for one in tape] == list(range(Q))
    assert all(one.verified for one in tape)


def test_a_softmax_that_mixes_nothing_is_no_attention() -> None:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(D, K)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(x @ torch.randn(D, D)).softmax(-1).log()

    model = Classifier()
    with pytest.warns(UserWarning, match="record heard no attention"), regard.record(model) as tape:
        model(torch.randn(B, Q, D))
    assert len(tape) == 0


class Speaks(nn.Module):
    """Attention, and at the end p(word) of every place."""

    def __init__(self, end: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.words, self.end = nn.Linear(D, 2 * K), end

    def forward(self, x: Tensor) -> Tensor:
        x = (x @ x.mT).softmax(-1) @ x
        return self.end(self.words(x).softmax(-1))


ENDS: dict[str, Callable[[Tensor], Tensor]] = {
    "as it is": lambda p: p,
    "likelihood": lambda p: p.clamp_min(1e-9).log().gather(-1, torch.zeros(B, Q, 1, dtype=torch.long)),
    "entropy": lambda p: -(p * p.log()).sum(-1),
    "drawn": lambda p: p.flatten(0, 1).multinomial(1),
    "the best": lambda p: p.topk(2, dim=-1).values,
    "a mixture of two": lambda p: 0.3 * p + 0.7 * torch.full_like(p, 0.1),
    "smoothed and normed": lambda p: (p**2) / (p**2).sum(-1, keepdim=True),
}


@pytest.mark.parametrize("end", ENDS)
def test_probabilities_of_words_are_no_attention_that_was_missed(end: str) -> None:
    """Warnings are errors."""
    model = Speaks(ENDS[end])
    with regard.record(model) as tape:
        model(torch.randn(B, Q, D))
    assert [one.shape for one in tape] == [(B, Q, Q)]


MISSED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "products summed": lambda w, v: (w.unsqueeze(-1) * v.unsqueeze(1)).sum(-2),
    "where": lambda w, v: torch.where(w > 0.1, w, torch.zeros(())) @ v,
    "a power": lambda w, v: w.pow(2) @ v,
    "three factors": lambda w, v: torch.einsum("bqk,bkd,d->bqd", w, v, torch.ones(D)),
    "tensordot": lambda w, v: torch.tensordot(w, v[0], dims=1),
    "linear": lambda w, v: F.linear(w, v[0].mT),
    "one of many": lambda w, v: torch.stack([torch.mm(w[n], v[n]) for n in range(B)]),
}


@pytest.mark.parametrize("way", MISSED)
def test_attention_that_is_not_understood_is_told(way: str) -> None:
    class Other(nn.Module):
        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            return MISSED[way]((q @ k.mT).softmax(-1), k)

    model = Other()
    said = "record heard a softmax in 'the model' that something was mixed by, in a way that is not understood"
    with pytest.warns(UserWarning, match=said), regard.record(model) as tape:
        model(torch.randn(B, Q, D), torch.randn(B, K, D))
    assert len(tape) == 0


def test_an_empty_tape_is_told() -> None:
    model = nn.Sequential(nn.Linear(D, K))
    with pytest.warns(UserWarning, match="record heard no attention; mix by scaled_dot_product"), regard.record(model):
        model(torch.randn(B, Q, D))
    with pytest.warns(UserWarning, match="no module of the model ran in this thread; call"), regard.record(model):
        pass
    with pytest.raises(KeyError, match="mine"), regard.record(model):
        raise KeyError("mine")
