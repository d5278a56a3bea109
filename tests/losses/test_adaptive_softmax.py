"""AdaptiveSoftmax, held to torch's: log-probabilities, the loss of each token and all gradients."""

import pytest
import torch
from torch import Tensor, nn

from regard.layers.adaptive_embedding import AdaptiveEmbedding
from regard.losses import AdaptiveSoftmax
from regard.losses.adaptive_softmax import cluster_widths

# sizes that share no factor: a swapped axis must fail
N, D, V = 17, 8, 23


def pair(cutoffs: list[int], div: int) -> tuple[AdaptiveSoftmax, nn.AdaptiveLogSoftmaxWithLoss]:
    """Both with the same weights; torch's tails have no bias."""
    ours = AdaptiveSoftmax(D, V, cutoffs, div=div).double()
    theirs = nn.AdaptiveLogSoftmaxWithLoss(D, V, cutoffs, div_value=div, head_bias=True).double()
    with torch.no_grad():
        theirs.head.weight.copy_(torch.cat([ours.shortlist.weight, ours.clusters.weight]))
        theirs.head.bias.copy_(torch.cat([ours.shortlist.bias, ours.clusters.bias]))
        for n, (projection, tail) in enumerate(zip(ours.projections, ours.tails, strict=True)):
            theirs.tail[n][0].weight.copy_(projection.T)
            theirs.tail[n][1].weight.copy_(tail.weight)
            nn.init.zeros_(tail.bias)
    return ours, theirs


@pytest.mark.parametrize(("cutoffs", "div"), [([5], 2), ([5, 11], 2), ([1, 2, 20], 2), ([22], 1)], ids=str)
@pytest.mark.parametrize("chosen", ["all", "shortlist", "last"])
def test_it_is_that_of_torch(cutoffs: list[int], div: int, chosen: str) -> None:
    ours, theirs = pair(cutoffs, div)
    states = torch.randn(N, D, dtype=torch.float64, requires_grad=True)
    targets = {
        "all": torch.arange(N) * 7 % V,
        "shortlist": torch.arange(N) % cutoffs[0],
        "last": torch.full((N,), V - 1),
    }[chosen]
    torch.testing.assert_close(ours(states), theirs.log_prob(states))
    total, nll = ours.token_loss(states, targets)
    want = theirs(states, targets)
    torch.testing.assert_close(nll, -want.output.detach())
    torch.testing.assert_close(total, -want.output.sum())
    (got,) = torch.autograd.grad(total, states, retain_graph=True)
    torch.testing.assert_close(got, torch.autograd.grad(want.loss * N, states)[0])
    ours.zero_grad()
    ours.token_loss(states, targets)[0].backward()
    (theirs(states, targets).loss * N).backward()
    torch.testing.assert_close(
        torch.cat([ours.shortlist.weight.grad, ours.clusters.weight.grad]), theirs.head.weight.grad
    )
    for n, tail in enumerate(ours.tails):
        if tail.weight.grad is not None:
            torch.testing.assert_close(tail.weight.grad, theirs.tail[n][1].weight.grad)
            torch.testing.assert_close(ours.projections[n].grad.T, theirs.tail[n][0].weight.grad)


def test_probabilities_sum_to_one_with_every_bias() -> None:
    layer = AdaptiveSoftmax(D, V, [5, 11]).double()
    for tail in layer.tails:
        nn.init.normal_(tail.bias)
    states, targets = torch.randn(2, N, D, dtype=torch.float64), torch.randint(0, V, (N,))
    log_p = layer(states)
    assert log_p.shape == (2, N, V)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(2, N, dtype=torch.float64))
    nll = layer.token_loss(states[0], targets)[1]
    torch.testing.assert_close(nll, -log_p[0].gather(-1, targets.unsqueeze(-1)).squeeze(-1).detach())
    assert repr(layer).startswith("AdaptiveSoftmax(\n  8, 23, cutoffs=[5, 11]")


def test_the_embedding_is_a_table_of_projected_vectors() -> None:
    sizes, widths = [5, 6, 12], cluster_widths(D, 2, 2)
    assert widths == [8, 4, 2]
    layer = AdaptiveEmbedding(sizes, widths).double()
    tables = [table.weight for table in layer.tables]
    whole = torch.cat([tables[0], *(t @ p.T for t, p in zip(tables[1:], layer.projections, strict=True))])
    tokens = torch.randint(0, V, (2, 3, N))
    torch.testing.assert_close(layer(tokens), whole[tokens])

    def run(*parameters: Tensor) -> Tensor:
        return torch.func.functional_call(
            layer, dict(zip(dict(layer.named_parameters()), parameters, strict=True)), tokens[0]
        )

    assert torch.autograd.gradcheck(run, tuple(layer.parameters()))
    assert layer(tokens[:0]).shape == (0, 3, N, D)
