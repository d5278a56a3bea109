"""CRF against the package pytorch-crf, wherever that package has an answer: masks that are prefixes."""

import pytest
import torch
import torchcrf

import regard


@pytest.mark.parametrize("shape", [(5, 13, 7), (1, 3, 2), (3, 1, 11)])
def test_loss_gradients_and_paths(shape: tuple[int, int, int]) -> None:
    b, t, k = shape
    theirs, ours = torchcrf.CRF(k, batch_first=True).double(), regard.CRF(k).double()
    names = {"transitions": "transitions", "start": "start_transitions", "end": "end_transitions"}
    ours.load_state_dict({name: theirs.state_dict()[other] for name, other in names.items()})
    emissions = torch.randn(b, t, k, dtype=torch.float64, requires_grad=True)
    tags, mask = torch.randint(k, (b, t)), torch.arange(t) < torch.randint(1, t + 1, (b, 1))
    # the package decides by torch.where on uint8, of which torch warns
    loss, want = ours.loss(emissions, tags, mask), -theirs(emissions, tags, mask, reduction="none")
    torch.testing.assert_close(loss, want)
    grad = torch.randn(b, dtype=torch.float64)
    mine = torch.autograd.grad(loss, [emissions, *(getattr(ours, name) for name in names)], grad)
    leaves = [emissions, *(getattr(theirs, other) for other in names.values())]
    others = torch.autograd.grad(want, leaves, grad, materialize_grads=True)
    torch.testing.assert_close(mine, others)
    assert ours.decode(emissions, mask) == theirs.decode(emissions, mask)
