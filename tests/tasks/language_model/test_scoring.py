"""Every token is scored once, with the context that window and stride give it."""

import math

import numpy as np
import pytest
import torch

from regard.data.text.special_tokens import EOS
from regard.models.gpt2 import GPT2
from regard.models.language_model import LanguageModel
from regard.models.transformer_xl import TransformerXL
from regard.tasks.language_model.scoring import loss_by_context, score_tokens, summarize, windows


def alone(model: LanguageModel, tokens: list[int]) -> float:
    """−log p of the last of these tokens."""
    with torch.no_grad():
        return -float(model(torch.tensor([tokens[:-1]]))[0, -1].double().log_softmax(-1)[tokens[-1]])


@pytest.mark.parametrize(("length", "window", "stride"), [(24, 7, 3), (24, 7, 7), (8, 7, 2), (5, 7, 3), (2, 7, 1)])
def test_windows_score_each_token_once_with_its_context(length: int, window: int, stride: int) -> None:
    torch.manual_seed(0)
    model = GPT2(11, width=8, layers=2, heads=2, longest=7).eval()
    stream = np.random.default_rng(0).integers(5, 11, length).astype(np.int32)
    scores = score_tokens(model, stream, window=window, stride=stride, has_memory=False)
    assert [n for _, first, end in windows(length, window, stride) for n in range(first, end)] == [*range(length - 1)]
    for n, (nll, context) in enumerate(zip(scores.nll, scores.context, strict=True)):
        assert nll == pytest.approx(alone(model, stream[n + 1 - context : n + 2].tolist()), rel=1e-4)
        assert context == n + 1 or window - stride < context <= window


def test_a_memory_is_carried_from_segment_to_segment() -> None:
    torch.manual_seed(0)
    model = TransformerXL(11, width=8, layers=1, heads=2, memory=100).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    stream = np.random.default_rng(0).integers(5, 11, 24).astype(np.int32)
    scores = score_tokens(model, stream, window=5, stride=5, has_memory=True)
    whole = score_tokens(model, stream, window=23, stride=23, has_memory=True)
    np.testing.assert_allclose(scores.nll, whole.nll, rtol=1e-4)
    short = score_tokens(model, stream, window=5, stride=5, has_memory=True, memory=1)
    assert not np.allclose(short.nll, whole.nll, rtol=1e-4)


def test_another_vocabulary_has_another_token_that_begins_a_document() -> None:
    torch.manual_seed(0)
    model = GPT2(11, width=8, layers=1, heads=2, longest=7).eval()
    stream = np.array([9, EOS, 5, EOS, 9, 6, EOS], np.int32)
    scores = score_tokens(model, stream, window=6, stride=6, has_memory=False, begin=9)
    assert scores.context.tolist() == [1, 2, 3, 4, 1, 2]
    assert scores.nll[5] == pytest.approx(alone(model, [9, 6, EOS]), rel=1e-4)


@pytest.mark.parametrize("memory", [None, 5])
def test_a_document_is_scored_as_if_it_were_alone(memory: int | None) -> None:
    """The documents begin at the same tokens of a window, after other documents of the same length."""
    torch.manual_seed(0)
    model: LanguageModel = (
        GPT2(11, width=8, layers=2, heads=2, longest=7)
        if memory is None
        else TransformerXL(11, width=8, layers=2, heads=2, memory=memory)
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    draw = np.random.default_rng(0)
    first, other, then = (np.array([EOS, *draw.integers(5, 11, n)], np.int32) for n in (9, 9, 8))
    found = [
        score_tokens(model, np.concatenate([each, then]), window=7, stride=7, has_memory=memory is not None)
        for each in (first, other)
    ]
    np.testing.assert_allclose(found[0].nll[10:], found[1].nll[10:], rtol=1e-5)
    assert not np.allclose(found[0].nll[:10], found[1].nll[:10])
    assert found[0].context[8:13].tolist() == [2, 3, 1, 2, 3]


def test_sums_are_divided_by_counts() -> None:
    torch.manual_seed(0)
    model = GPT2(11, width=8, layers=1, heads=2, longest=7).eval()
    scores = score_tokens(model, np.arange(5, 15, dtype=np.int32) % 6 + 5, window=4, stride=3, has_memory=False)
    found = summarize(scores, 18)
    assert found["nll"] == pytest.approx(scores.nll.mean())
    assert found["perplexity"] == pytest.approx(math.exp(found["nll"]))
    assert found["bits per character"] == pytest.approx(scores.nll.sum() / 18 / math.log(2))
    by_context = loss_by_context(scores)
    assert len(by_context) == 4
    assert by_context[0] == pytest.approx(scores.nll[0])
