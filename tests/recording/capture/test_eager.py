"""Attention written out: softmax, dropout, a product. And what is not attention, though it has a softmax."""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
import torch.nn.functional as F
from tests.for_each import for_each
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


# how attention is written out, and the map that is recorded
WRITTEN: dict[Attend, str] = {
    **dict.fromkeys((matmul, operators, in_place, masked, einsum, dotted, turned), "LazyMap"),
    **dict.fromkeys((capped, learned, after), "DenseMap"),
}


class Model(nn.Module):
    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.attend, self.weights = attend, torch.empty(0)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.weights, out = self.attend(q, k, v)
        return out


def recorded(
    attend: Attend, queries: int = Q, keys: int = K, inference: bool = False
) -> tuple[regard.recording.RecordedMap, Tensor]:
    """The recorded map and the weights that the model used."""
    model = Model(attend)
    q, k, v = (torch.randn(B, H, n, D) for n in (queries, keys, keys))
    with torch.inference_mode(inference):
        torch.manual_seed(3)
        want = model(q, k, v)
        torch.manual_seed(3)
        with regard.record(model) as tape:
            got = model(q, k, v)
    assert torch.equal(want, got)
    (one,) = tape
    return one, model.weights


@for_each("attend", WRITTEN)
def test_scores_are_followed_to_queries_and_keys_or_the_weights_are_kept(attend: Attend) -> None:
    one, weights = recorded(attend)
    assert one.captured_from == "softmax"
    assert one.verified
    assert type(one.weights).__name__ == WRITTEN[attend]
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
    assert type(one.weights).__name__ == "LazyMap"
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
    with pytest.warns(UserWarning, match="record found no attention"), regard.record(model) as tape:
        model(torch.randn(B, Q, D))
    assert len(tape) == 0


class Speaks(nn.Module):
    """Attention, and at the end p(word) of every place."""

    def __init__(self, end: Callable[[Tensor], Tensor], head: str) -> None:
        super().__init__()
        self.words, self.end, self.head = nn.Linear(D, 2 * K), end, head

    def forward(self, x: Tensor) -> Tensor:
        x = (x @ x.mT).softmax(-1) @ x
        return self.end(HEADS[self.head](self.words, x).softmax(-1))


# how the scores of all words are written
HEADS: dict[str, Callable[[nn.Linear, Tensor], Tensor]] = {
    "a layer": lambda words, x: words(x),
    "a product": lambda words, x: x @ words.weight.T,
    "a product in another type": lambda words, x: (x.double() @ words.weight.double().mT).float(),
    "a product for every sample": lambda words, x: torch.bmm(x, words.weight.mT.expand(B, D, 2 * K)),
    "einsum": lambda words, x: torch.einsum("bqd,kd->bqk", x, words.weight),
}
ENDS: dict[str, Callable[[Tensor], Tensor]] = {
    "as it is": lambda p: p,
    "likelihood": lambda p: p.clamp_min(1e-9).log().gather(-1, torch.zeros(B, Q, 1, dtype=torch.long)),
    "entropy": lambda p: -(p * p.log()).sum(-1),
    "drawn": lambda p: p.flatten(0, 1).multinomial(1),
    "the best": lambda p: p.topk(2, dim=-1).values,
    "a mixture of two": lambda p: 0.3 * p + 0.7 * torch.full_like(p, 0.1),
    "smoothed and normed": lambda p: (p**2) / (p**2).sum(-1, keepdim=True),
    "one by one": lambda p: torch.stack([one.log() for one in p]),
    "in parts": lambda p: sum(part.sum(-1) for part in p.split(K, -1)),
    "with words that were copied": lambda p: torch.cat([0.3 * p, torch.zeros(B, Q, 3)], -1).log(),
    "with room for others": lambda p: F.pad(p, (0, 3)),
    "of several beams": lambda p: torch.rand(B, 3, Q, 1) + p.unsqueeze(1).log(),
    "by the truth": lambda p: -(p * F.one_hot(torch.zeros(B, Q, dtype=torch.long), 2 * K).float()).sum(-1).log(),
    "by a smoothed truth": lambda p: (p * torch.full_like(p, 1 / (2 * K))).sum(-1),
    "of words that may be": lambda p: (p * (torch.rand(p.shape) > 0.5).float()).sum(-1, keepdim=True),
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_probabilities_of_words_are_no_attention_that_was_missed(
    mode: Callable[[], AbstractContextManager[None]], end: str, head: str
) -> None:
    """Warnings are errors."""
    model = Speaks(ENDS[end], head)
    with mode(), regard.record(model) as tape:
        model(torch.randn(B, Q, D))
    assert [one.shape for one in tape] == [(B, Q, Q)]


# of values: fewer than keys, so that what is mixed has fewer numbers than what it is mixed by
V = 3
MISSED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "products summed": lambda w, v: (w.unsqueeze(-1) * v.unsqueeze(1)).sum(-2),
    "where": lambda w, v: torch.where(w > 0.1, w, torch.zeros(())) @ v,
    "where, by name": lambda w, v: torch.where(w < 0.1, input=torch.zeros(()), other=w) @ v,
    "a power": lambda w, v: w.pow(2) @ v,
    "three factors": lambda w, v: torch.einsum("bqk,bkd,d->bqd", w, v, torch.ones(V)),
    "three factors in a list": lambda w, v: torch.einsum("bqk,bkd,d->bqd", [w, v, torch.ones(V)]),
    "tensordot": lambda w, v: torch.tensordot(w, v[0], dims=1),
    "linear": lambda w, v: F.linear(w, v[0].mT),
    "one of many": lambda w, v: torch.stack([torch.mm(w[n], v[n]) for n in range(B)]),
    "unbound": lambda w, v: torch.stack([a @ b for a, b in zip(w.unbind(0), v.unbind(0), strict=True)]),
    "iterated": lambda w, v: torch.stack([torch.mm(a, b) for a, b in zip(w, v, strict=True)]),
    "row by row": lambda w, v: torch.stack([torch.mv(v[0].mT, row) for row in w[0]]),
    "split": lambda w, v: sum(a @ b for a, b in zip(w.split(4, -1), v.split(4, 1), strict=True)),
    "chunks": lambda w, v: sum(a @ b for a, b in zip(w.chunk(2, -1), v.chunk(2, 1), strict=True)),
    "joined": lambda w, v: torch.cat([w, w], -1) @ torch.cat([v, v], 1),
    "linalg.matmul": lambda w, v: torch.linalg.matmul(w, v),
    "linalg.vecdot": lambda w, v: torch.linalg.vecdot(w[:, :, None, :], v.mT[:, None]),
    "linalg.multi_dot": lambda w, v: torch.linalg.multi_dot([w[0], v[0], torch.eye(V)]),
    "sparse.mm": lambda w, v: torch.stack([torch.sparse.mm(w[n].to_sparse(), v[n]) for n in range(B)]),
    "addcmul": lambda w, v: torch.addcmul(torch.zeros(B, Q, K, V), w[..., None], v[:, None]).sum(2),
    "the greatest": lambda w, v: w.topk(3, -1).values.pow(1) @ v[:, :3],
}
# only where queries and keys were compared
FAR: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "many calls": lambda w, v: functools.reduce(lambda t, _: t.clamp(0, 1), range(9), w) @ v,
    "a convolution": lambda w, v: F.conv1d(v[:1].mT, w[0][:, None].expand(-1, V, -1).contiguous()),
    "the best one": lambda w, v: v.gather(1, w.argmax(-1)[..., None].expand(-1, -1, V)),
    "nothing": lambda w, v: w,
}
SAID = "record found a softmax in 'other' that looks like attention but could not follow how its output is used"


class Both(nn.Module):
    """An attention that is heard, and another: a tape that is empty would be told of anyway."""

    def __init__(self, other: nn.Module) -> None:
        super().__init__()
        self.other = other

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        k = (k @ k.mT).softmax(-1) @ k
        return self.other(q, k)


class Other(nn.Module):
    """Scores by comparing queries with keys, or by a layer."""

    def __init__(self, mix: Callable[[Tensor, Tensor], Tensor], compared: bool) -> None:
        super().__init__()
        self.mix, self.layer = mix, None if compared else nn.Linear(D, K)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        scores = q @ k.mT if self.layer is None else self.layer(q)
        return self.mix(scores.softmax(-1), k[..., :V])


@for_each(("way", "compared"), [*[(way, True) for way in (*MISSED, *FAR)], *[(way, False) for way in MISSED]])
def test_attention_that_is_not_understood_is_told(way: str, compared: bool) -> None:
    model = Both(Other({**MISSED, **FAR}[way], compared))
    with pytest.warns(UserWarning, match=SAID), regard.record(model) as tape:
        model(torch.randn(B, Q, D), torch.randn(B, K, D))
    assert [one.name for one in tape] == [""]


@pytest.mark.parametrize("axis", [1, 2])
def test_pooling_with_a_weight_for_every_channel_is_told(axis: int) -> None:
    """(w ∘ x) summed over places: attentive statistics pooling  (Okabe et al. 2018)."""

    class Pools(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score = nn.Linear(D, D)

        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            scores = self.score(k)
            x = k if axis == 1 else k.mT
            return ((scores if axis == 1 else scores.mT).softmax(axis) * x).sum(axis)

    model = Both(Pools())
    with pytest.warns(UserWarning, match=SAID), regard.record(model) as tape:
        model(torch.randn(B, Q, D), torch.randn(B, K, D))
    assert [one.name for one in tape] == [""]


def test_an_empty_tape_is_told() -> None:
    model = nn.Sequential(nn.Linear(D, K))
    with (
        pytest.warns(UserWarning, match="record found no attention; attend by scaled_dot_product"),
        regard.record(model),
    ):
        model(torch.randn(B, Q, D))
    with pytest.warns(UserWarning, match="no module of the model ran in this thread; call"), regard.record(model):
        pass
    with pytest.raises(KeyError, match="mine"), regard.record(model):
        raise KeyError("mine")
