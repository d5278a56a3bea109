"""Talking heads: the formula, identity matrices, masks, and heads that do not fit."""

import pytest
import torch
from torch import Tensor, nn

import regard
from regard import Attention, MultiHead, Need
from regard.attn.backends import BACKENDS
from regard.normalizers import TalkingWeights
from regard.scores import TalkingScores

DIM, HEADS, T = 15, 3, 7


def layer(random: bool = True) -> MultiHead:
    torch.manual_seed(0)
    attention = Attention(TalkingScores(HEADS), normalize=TalkingWeights(HEADS))
    heads = MultiHead(DIM, HEADS, attention=attention).double().eval()
    if random:
        for mixture in (attention.score.mixture, attention.normalize.mixture):
            nn.init.normal_(mixture)
    return heads


def loop(heads: MultiHead, x: Tensor) -> tuple[Tensor, Tensor]:  # "t d" -> "t d", "h t t"
    """The pseudo-code of the paper, one query at a time."""
    before, after = heads.attention.score.mixture, heads.attention.normalize.mixture
    q, k, v = (linear(x).view(T, HEADS, -1) for linear in (heads.query, heads.key, heads.value))
    rows, weights = [], torch.zeros(HEADS, T, T, dtype=x.dtype)
    for t in range(T):
        scores = torch.stack([k[: t + 1, h] @ q[t, h] for h in range(HEADS)]) / k.shape[-1] ** 0.5
        talked = torch.stack([sum(before[n, m] * scores[m] for m in range(HEADS)) for n in range(HEADS)])
        shares = torch.softmax(talked, -1)
        read = [sum(after[n, m] * shares[m] for m in range(HEADS)) for n in range(HEADS)]
        weights[:, t, : t + 1] = torch.stack(read)
        rows.append(torch.cat([read[n] @ v[: t + 1, n] for n in range(HEADS)]))
    return heads.out(torch.stack(rows)), weights


def test_it_is_the_formula_and_its_steps_are_the_whole() -> None:
    heads, x = layer(), torch.randn(2, T, DIM, dtype=torch.float64)
    got = heads.attend(x, mask=regard.Causal(), need=Need(weights=True))
    for n in range(2):
        want, weights = loop(heads, x[n])
        torch.testing.assert_close(got.out[n], want)
        torch.testing.assert_close(got.weights[n], weights)
    with torch.no_grad():
        past = None
        for t in range(T):
            step, past = heads.step(x[:, t : t + 1], past, mask=regard.Causal())
            torch.testing.assert_close(step[:, 0], got.out[:, t])


def test_identity_matrices_are_plain_heads() -> None:
    heads, x = layer(random=False), torch.randn(2, T, DIM, dtype=torch.float64)
    plain = MultiHead(DIM, HEADS).double()
    plain.load_state_dict({name: t for name, t in heads.state_dict().items() if "mixture" not in name})
    torch.testing.assert_close(heads(x), plain(x))


def test_backends_agree_and_gradients_are_those_of_the_output() -> None:
    heads = layer()
    score, normalize = heads.attention.score, heads.attention.normalize
    q, k, v = (torch.randn(2, HEADS, T, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    terms = {"score": score, "normalize": normalize, "mask": regard.Causal() & regard.Lengths([T, 4])}
    want = regard.attention(q, k, v, backend="eager", **terms)
    gradients = torch.autograd.grad(want.square().sum(), [q, k, v, score.mixture, normalize.mixture])
    got = regard.attention(q, k, v, backend="blocked", **terms)
    torch.testing.assert_close(got, want)
    found = torch.autograd.grad(got.square().sum(), [q, k, v, score.mixture, normalize.mixture])
    for one, other in zip(found, gradients, strict=True):
        torch.testing.assert_close(one, other)
    assert torch.autograd.gradcheck(lambda *_: regard.attention(q, k, v, **terms), (score.mixture, normalize.mixture))
    for name in set(BACKENDS) - {"eager", "blocked"}:
        with pytest.raises(ValueError, match=f"backend '{name}' cannot run this"):
            regard.attention(q, k, v, backend=name, **terms)


def test_a_key_that_one_head_may_not_read_has_no_weight_in_it() -> None:
    heads, x = layer(), torch.randn(2, T, DIM, dtype=torch.float64)
    allowed = torch.rand(2, HEADS, T, T) < 0.5
    weights = heads.attend(x, mask=allowed, need=Need(weights=True)).weights
    assert not weights[~allowed].any()


def test_heads_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="is for 3 heads, but axis -3 of .* counts 4"):
        MultiHead(16, 4, attention=Attention(TalkingScores(3)))(torch.randn(1, 2, 16))
    with pytest.raises(ValueError, match="is for 3 heads, but axis -3 of .* counts 4"):
        MultiHead(16, 4, attention=Attention(normalize=TalkingWeights(3)))(torch.randn(1, 2, 16))
    with pytest.raises(ValueError, match="heads must be a whole number, 1 or more, for TalkingScores"):
        TalkingScores(0)
