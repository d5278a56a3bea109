"""Hard attention learns to point: the query says which slot to copy, and only the copied value is rewarded."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard import Attention, Bilinear, Gumbel, Need, Sample
from regard.losses import Baseline, reinforce
from regard.reads import StraightThrough

SLOTS, VALUES, BATCH = 4, 5, 64


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries that name a slot, slots in a random order that name themselves, what lies in them, and what is right."""
    wanted = torch.randint(SLOTS, (BATCH,))
    order = torch.rand(BATCH, SLOTS).argsort(-1)
    values = torch.randint(VALUES, (BATCH, SLOTS))
    right = values.gather(1, (order == wanted[:, None]).long().argmax(1, keepdim=True)).squeeze(1)
    return F.one_hot(wanted, SLOTS).float().unsqueeze(1), F.one_hot(order, SLOTS).float(), values, right


def accuracy(layer: Attention) -> float:
    """How often the greatest weight lies on the right slot."""
    torch.manual_seed(1)
    q, k, _, _ = batch()
    weights = layer.eval().attend(q, k, need=Need(weights=True)).weights
    found = k.gather(1, weights.argmax(-1).unsqueeze(-1).expand(-1, -1, SLOTS))
    return float((found * q).sum(-1).mean())


def test_reinforce_learns_to_point() -> None:
    torch.manual_seed(0)
    layer = Attention(Bilinear(SLOTS, SLOTS), read=Sample())
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    baseline = Baseline()
    assert accuracy(layer) < 0.7
    layer.train()
    for _ in range(300):
        q, k, values, right = batch()
        got = layer.attend(q, k, F.one_hot(values, VALUES).float(), need=Need(log_prob=True))
        reward = (got.out.squeeze(1).argmax(-1) == right).float()
        loss = reinforce(got.log_prob.squeeze(1), reward, baseline)
        baseline = baseline.updated(reward)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert accuracy(layer) > 0.9


@pytest.mark.parametrize("read", [Gumbel(temperature=0.7), StraightThrough()])
def test_relaxed_draws_learn_to_point(read: Gumbel | StraightThrough) -> None:
    torch.manual_seed(0)
    layer = Attention(Bilinear(SLOTS, SLOTS), read=read)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    assert accuracy(layer) < 0.7
    layer.train()
    for _ in range(300):
        q, k, values, right = batch()
        out = layer(q, k, F.one_hot(values, VALUES).float()).squeeze(1)
        loss = F.cross_entropy(out * 5, right)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert accuracy(layer) > 0.9
