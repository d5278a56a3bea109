"""Samplers against the logits processors of transformers, in the order of its `generate`."""

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from regard.decoding.sampling import penalize
from regard.decoding.token_sampling import truncate


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p"),
    [(None, None, None), (7, None, None), (None, 0.8, None), (None, None, 0.1), (11, 0.7, 0.2), (1, 0.5, 0.9)],
)
@pytest.mark.parametrize("penalty", [1.0, 1.3, 0.8])
def test_probabilities(
    temperature: float, top_k: int | None, top_p: float | None, min_p: float | None, penalty: float
) -> None:
    torch.manual_seed(0)
    logits = 3 * torch.randn(5, 23, dtype=torch.float64)
    history = torch.randint(23, (5, 13))
    processors = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(penalty), TemperatureLogitsWarper(temperature)])
    if top_k is not None:
        processors.append(TopKLogitsWarper(top_k))
    if top_p is not None:
        processors.append(TopPLogitsWarper(top_p))
    if min_p is not None:
        processors.append(MinPLogitsWarper(min_p))
    theirs = processors(history, logits.clone()).softmax(-1)
    seen = torch.zeros_like(logits, dtype=torch.bool).scatter(1, history, True)
    values, ids = truncate(penalize(logits, seen, penalty), temperature, top_k, top_p, min_p)
    ours = values.exp() if ids is None else torch.zeros_like(logits).scatter(1, ids, values.exp())
    torch.testing.assert_close(ours, theirs)
