"""What may be averaged: numbers, not directions."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from regard.common.weight_averaging import can_average


def test_directions_and_counts_have_no_mean() -> None:
    model = nn.Sequential(spectral_norm(nn.Linear(3, 2)), nn.BatchNorm1d(2))
    found = [name for name, t in model.state_dict().items() if not can_average(name, t)]
    assert found == [
        "0.parametrizations.weight.0._u",
        "0.parametrizations.weight.0._v",
        "1.num_batches_tracked",
    ]
    alone = spectral_norm(nn.Linear(3, 2)).state_dict()
    assert [name for name, t in alone.items() if can_average(name, t)] == ["bias", "parametrizations.weight.original"]
    # a model's own buffer of that name is a number like another
    assert can_average("model.memory._u", torch.zeros(3))
