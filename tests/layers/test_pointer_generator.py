"""PointerGenerator: p is a distribution, its formula in plain loops, and the vocabulary alone without a source."""

import math

import pytest
import torch
from torch import Tensor

from regard.layers.pointer_generator import CopySource, PointerGenerator

pytestmark = pytest.mark.usefixtures("float64")

# sizes that share no factor
B, T, S, D, V = 2, 3, 5, 7, 11


def given() -> tuple[PointerGenerator, Tensor, Tensor, CopySource]:
    torch.manual_seed(1)
    pointer = PointerGenerator(D)
    torch.nn.init.normal_(pointer.gate.weight)
    torch.nn.init.normal_(pointer.query.bias)
    # a token that occurs twice, and one that may not be copied
    tokens = torch.tensor([[4, 9, 4, 1, 8], [3, 3, 3, 6, 5]])
    mask = torch.tensor([[[True, True, True, False, True]], [[True, False, True, False, False]]])
    states, sources = torch.randn(B, T, D), torch.randn(B, S, D)
    return pointer, torch.randn(B, T, V), states, CopySource(pointer.keys(sources), tokens, mask)


def test_it_is_its_formula_in_plain_loops() -> None:
    pointer, logits, states, source = given()
    log_p = pointer.log_probs(logits, pointer.mixture(states, source), source)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(B, T))
    for b in range(B):
        seen = [j for j in range(S) if source.mask[b, 0, j]]
        for t in range(T):
            s = states[b, t]
            q = pointer.query.weight @ s + pointer.query.bias
            alpha = torch.stack([q @ source.keys[b, j] / math.sqrt(D) for j in seen]).softmax(0)
            g = torch.sigmoid(pointer.gate.weight[0] @ s + pointer.gate.bias[0])
            p = g * logits[b, t].softmax(0)
            for a, j in zip(alpha, seen, strict=True):
                p[int(source.tokens[b, j])] += (1 - g) * a
            torch.testing.assert_close(log_p[b, t], p.log())


def test_the_targets_alone_have_the_same_log_p_and_gradients_are_right() -> None:
    pointer, logits, states, source = given()
    targets = torch.tensor([[4, 9, 0], [3, 6, 5]])
    wanted = logits.log_softmax(-1).gather(2, targets.unsqueeze(-1)).squeeze(-1)
    mixture = pointer.mixture(states, source)
    found = pointer.token_log_probs(wanted, mixture, source, targets)
    expected = pointer.log_probs(logits, mixture, source).gather(2, targets.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(found, expected)

    def whole(some_logits: Tensor, some_states: Tensor, keys: Tensor) -> Tensor:
        other = source._replace(keys=keys)
        return pointer.log_probs(some_logits, pointer.mixture(some_states, other), other)

    inputs = [part.detach().requires_grad_() for part in (logits[:, :2], states[:, :2], source.keys)]
    assert torch.autograd.gradcheck(whole, inputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_keep_a_distribution(dtype: torch.dtype) -> None:
    """Of many tokens that cannot be copied: the least number of float16 for each would be much in sum."""
    pointer, _, states, source = given()
    pointer, source = pointer.to(dtype), source._replace(keys=source.keys.to(dtype))
    logits = 4 * torch.randn(B, T, 3001, dtype=dtype)
    mixture = pointer.mixture(states.to(dtype), source)
    log_p = pointer.log_probs(logits, mixture, source)
    assert log_p.dtype == dtype
    torch.testing.assert_close(log_p.double().exp().sum(-1), torch.ones(B, T), atol=0.02, rtol=0)
    targets = torch.full((B, T), 2999)
    rare = torch.full((B, T), -20.0, dtype=dtype)
    found = pointer.token_log_probs(rare, mixture, source, targets)
    torch.testing.assert_close(found, mixture.log_generate + rare)


@pytest.mark.parametrize("length", [S, 0])
def test_without_a_source_p_is_that_of_the_vocabulary(length: int) -> None:
    pointer, logits, states, source = given()
    none = CopySource(source.keys[:, :length], source.tokens[:, :length], torch.zeros(B, 1, length, dtype=torch.bool))
    log_p = pointer.log_probs(logits, pointer.mixture(states, none), none)
    torch.testing.assert_close(log_p, logits.log_softmax(-1))


def test_one_mask_per_step_and_rows_of_a_batch() -> None:
    pointer, logits, states, source = given()
    steps = source.mask & (torch.arange(S) <= torch.arange(T).unsqueeze(-1))
    several = source._replace(mask=steps)
    log_p = pointer.log_probs(logits, pointer.mixture(states, several), several)
    for t in range(T):
        part = source._replace(mask=steps[:, t : t + 1])
        alone = pointer.log_probs(logits[:, t : t + 1], pointer.mixture(states[:, t : t + 1], part), part)
        torch.testing.assert_close(log_p[:, t : t + 1], alone)
    second = source.select(torch.tensor([1]))
    row = pointer.log_probs(logits[1:], pointer.mixture(states[1:], second), second)
    torch.testing.assert_close(row, pointer.log_probs(logits, pointer.mixture(states, source), source)[1:])
