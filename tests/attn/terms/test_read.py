"""Reads alone: weights, values and a generator."""

import math

import torch
from tests.for_each import for_each

import regard
from regard import Argmax, Gumbel, Sample
from regard.attn.terms.read import entropy
from regard.reads import StraightThrough, WeightedSum

READS = [WeightedSum(), Argmax(), Sample(), Gumbel(), Gumbel(0.3), StraightThrough()]


def weights(requires_grad: bool = False) -> torch.Tensor:
    w = torch.softmax(torch.randn(2, 3, 5, dtype=torch.float64), -1)
    w[0, 0] = 0.0
    return w.requires_grad_(requires_grad)


@for_each("read", READS, ids=repr)
def test_the_same_generator_takes_the_same(read: regard.Read) -> None:
    w, v = weights(), torch.randn(2, 5, 7, dtype=torch.float64)
    one, two = (read.read(w, v, torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(one.out, two.out)
    assert one.out.shape == (2, 3, 7)
    assert (one.out[0, 0] == 0).all()
    if read.hard:
        assert one.key_index[0, 0] == -1
        assert one.log_prob[0, 0] == 0
        alive = one.key_index >= 0
        chosen = w.gather(-1, one.key_index.clamp_min(0).unsqueeze(-1)).squeeze(-1)
        torch.testing.assert_close(one.log_prob[alive], chosen[alive].log())
        if not isinstance(read, Gumbel):
            for b in range(2):
                for i in range(3):
                    if alive[b, i]:
                        torch.testing.assert_close(one.out[b, i], v[b, one.key_index[b, i]])


@for_each("read", READS, ids=repr)
def test_gradients_with_the_same_draws(read: regard.Read) -> None:
    w, v = weights(requires_grad=True), torch.randn(2, 5, 2, dtype=torch.float64, requires_grad=True)

    def taken(w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        got = read.read(w, v, torch.Generator().manual_seed(4))
        return got.out if got.log_prob is None else got.out + got.log_prob.unsqueeze(-1)

    if isinstance(read, StraightThrough):  # the slope is Mix's on purpose
        got = read.read(w, v)
        grads = torch.autograd.grad(got.out.sum(), w)
        assert torch.equal(grads[0], torch.autograd.grad(WeightedSum().read(w, v).out.sum(), w)[0])
        assert torch.autograd.gradcheck(lambda v: taken(w.detach(), v), (v,))
        return
    with torch.no_grad():
        w[0, 0] = torch.arange(1, 6) / 15  # an empty row has a corner there
    assert torch.autograd.gradcheck(taken, (w, v))


@for_each("read", READS, ids=repr)
def test_an_empty_row_has_no_gradient(read: regard.Read) -> None:
    w, v = weights(requires_grad=True), torch.randn(2, 5, 2, dtype=torch.float64, requires_grad=True)
    got = read.read(w, v)
    total = got.out[0, 0].sum() + (0.0 if got.log_prob is None else got.log_prob[0, 0])
    grads = torch.autograd.grad(total, [w, v], allow_unused=True)
    for g in grads if not isinstance(read, WeightedSum | StraightThrough) else grads[1:]:
        assert g is None or (g == 0).all()


def test_argmax_takes_the_greatest() -> None:
    w, v = weights(), torch.randn(2, 5, 7, dtype=torch.float64)
    assert torch.equal(Argmax().read(w, v).key_index[1], w[1].argmax(-1))
    assert torch.equal(StraightThrough().read(w, v).key_index[1], w[1].argmax(-1))


def test_a_sample_is_distributed_as_the_weights_even_if_they_do_not_sum_to_one() -> None:
    w = torch.tensor([0.1, 0.0, 0.3, 0.2]).expand(4000, 1, 4)
    got = Sample().read(w, torch.eye(4))
    shares = torch.bincount(got.key_index.flatten(), minlength=4) / 4000
    torch.testing.assert_close(shares, torch.tensor([1, 0, 3, 2]) / 6, atol=0.03, rtol=0)
    torch.testing.assert_close(got.log_prob.exp().flatten(), (w[0, 0] / 0.6)[got.key_index.flatten()])


def test_a_cold_gumbel_is_a_sample() -> None:
    w = torch.tensor([0.1, 0.0, 0.6, 0.3]).expand(4000, 1, 4)
    got = Gumbel(0.01).read(w, torch.eye(4))
    torch.testing.assert_close(got.out.mean((0, 1)), w[0, 0], atol=0.03, rtol=0)
    assert (got.out[..., 1] == 0).all()


@for_each("read", READS, ids=repr)
def test_nothing_to_take(read: regard.Read) -> None:
    got = read.read(torch.zeros(2, 3, 0), torch.zeros(2, 0, 7))
    assert torch.equal(got.out, torch.zeros(2, 3, 7))
    if read.hard:
        assert (got.key_index == -1).all()
        assert (got.log_prob == 0).all()


def test_entropy() -> None:
    w = torch.tensor([[0.25, 0.25, 0.25, 0.25], [1, 0, 0, 0], [0, 0, 0, 0], [0.1, 0.1, 0, 0]], requires_grad=True)
    got = entropy(w)
    torch.testing.assert_close(got, torch.tensor([math.log(4), 0, 0, math.log(2)]))
    got.sum().backward()
    assert torch.isfinite(w.grad).all()


def test_reads_are_values() -> None:
    assert Gumbel(0.5) == Gumbel(0.5) != Gumbel(0.6)


@for_each("read", READS, ids=repr)
def test_a_settled_read_draws_nothing(read: regard.Read) -> None:
    settled = read.in_eval()
    assert not settled.is_stochastic
    assert settled == (Argmax() if read.is_stochastic else read)
    assert settled.in_eval() == settled
