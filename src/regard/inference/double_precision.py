"""in_double: a predictor whose results do not depend on the other inputs of a batch, up to about 1e-14.

A matrix product sums in an order that depends on the number of rows, so a result of float32 changes in its last digits
with the batch, and a search may decide otherwise where two hypotheses are that close. In float64 these differences are
far below every digit that a service returns.
"""

import copy
from typing import TypeVar

import torch

from regard.inference.predictor import Predictor

AnyPredictor = TypeVar("AnyPredictor", bound=Predictor)  # type: ignore[type-arg]


def in_double(predictor: AnyPredictor) -> AnyPredictor:
    """The predictor with a copy of its model in float64; on the CPU if the device is an Apple GPU, which has no
    float64."""
    doubled = copy.copy(predictor)
    device = torch.device("cpu") if predictor.device.type == "mps" else predictor.device
    doubled.model = copy.deepcopy(predictor.model).to(device, torch.float64)
    return doubled
