"""Searches over a language model: a step and a state are enough, there is no source."""

import pytest
import torch
from torch import Tensor

from regard.decoding.greedy import greedy
from regard.decoding.search import Beam, Greedy, Sampling, Search, run_search
from regard.models import GPT2

V, EOS = 7, 2
PROMPT = torch.tensor([[3, 5, 1, 4], [6, 6, 0, 5], [1, 3, 3, 0]])
LIMITS = torch.tensor([5, 9, 2])


@pytest.fixture
def model() -> GPT2:
    torch.manual_seed(5)
    model = GPT2(V, width=12, layers=2, heads=3, positions="rotary").double().eval()
    torch.nn.init.normal_(model.output.weight, std=0.4)
    return model


@pytest.mark.parametrize("search", [Greedy(), Beam(size=3, nbest=2), Sampling(count=2, seed=3)], ids=repr)
@torch.no_grad()
def test_run_search_needs_no_source(model: GPT2, search: Search) -> None:
    found = run_search(
        model, model.init_state(PROMPT[:, :-1]), search, LIMITS, [4, 5, 6], bos=PROMPT[:, -1], eos=EOS, forbidden=()
    )
    assert [len(hypotheses) for hypotheses in found] == [1 if search == Greedy() else 2] * 3
    for n, hypotheses in enumerate(found):
        assert hypotheses == sorted(hypotheses, key=lambda one: -one.score)
        row = slice(n, n + 1)
        state = model.init_state(PROMPT[row, :-1])
        alone = run_search(model, state, search, LIMITS[row], [4 + n], bos=PROMPT[row, -1], eos=EOS, forbidden=())
        assert [one.tokens for one in alone[0]] == [one.tokens for one in hypotheses]


@pytest.mark.parametrize("bos", [PROMPT[:2, -1], PROMPT, PROMPT[:, -1].double()], ids=["few", "prompts", "floats"])
@torch.no_grad()
def test_first_tokens_are_one_per_sentence(model: GPT2, bos: Tensor) -> None:
    with pytest.raises(ValueError, match=r"bos must be one token, or int64 with one token per sentence \(3\).*prompt"):
        greedy(model, model.init_state(PROMPT[:, :-1]), bos=bos, eos=EOS, limits=LIMITS)
