"""Parity with keras on its torch backend."""

import keras
import numpy
import pytest
import torch

import regard
from regard import Need

B, Q, K, D = 2, 5, 7, 8


def tensors(width: int = D) -> tuple[torch.Tensor, ...]:
    return torch.randn(B, Q, width), torch.randn(B, K, width), torch.randn(B, K, width)


def test_attention_by_dot_product() -> None:
    q, k, v = tensors()
    layer = keras.layers.Attention()
    out, weights = layer([q, v, k], return_attention_scores=True)
    got = regard.attend(q, k, v, score=regard.Dot(1.0), need=Need(weights=True))
    torch.testing.assert_close(got.out, out.detach())
    torch.testing.assert_close(got.weights, weights.detach())
    lengths = torch.tensor([3, 7])
    masked = layer([q, v, k], mask=[None, torch.arange(K) < lengths[:, None]])
    torch.testing.assert_close(
        regard.attention(q, k, v, score=regard.Dot(1.0), mask=regard.Lengths(lengths)), masked.detach()
    )


def test_attention_with_a_scale() -> None:
    q, k, v = tensors()
    layer = keras.layers.Attention(use_scale=True)
    layer.build([q.shape, v.shape, k.shape])
    layer.set_weights([numpy.array(0.37, "float32")])
    torch.testing.assert_close(regard.attention(q, k, v, score=regard.Dot(0.37)), layer([q, v, k]).detach())


def test_additive_attention() -> None:
    q, k, v = tensors()
    layer = keras.layers.AdditiveAttention()
    layer.build([q.shape, v.shape, k.shape])
    energy = torch.randn(D)
    layer.set_weights([energy.numpy()])
    score = regard.Additive(D, D, D)
    with torch.no_grad():
        score.query.weight.copy_(torch.eye(D))
        score.key.weight.copy_(torch.eye(D))
        score.energy.copy_(energy)
    torch.testing.assert_close(regard.attention(q, k, v, score=score), layer([q, v, k]).detach(), rtol=1e-4, atol=1e-5)


def _copy(linear: torch.nn.Linear, kernel: torch.Tensor, bias: torch.Tensor, out: bool = False) -> None:
    """A dense layer with heads of its own, kernel (dim, h, d) or (h, d, dim), as one linear layer."""
    with torch.no_grad():
        flat = kernel.flatten(0, 1).T if out else kernel.flatten(1).T
        linear.weight.copy_(flat)
        linear.bias.copy_(bias.flatten())


@pytest.mark.parametrize("kv_heads", [None, 1, 2])
def test_multi_head_and_grouped_query_attention(kv_heads: int | None) -> None:
    q, k, v = tensors(12)
    if kv_heads is None:
        theirs = keras.layers.MultiHeadAttention(num_heads=4, key_dim=3)
    else:
        theirs = keras.layers.GroupQueryAttention(head_dim=3, num_query_heads=4, num_key_value_heads=kv_heads)
    theirs(q, v, k)
    for weight in theirs.weights:
        weight.assign(torch.randn(tuple(weight.shape)))
    ours = regard.MultiHead(12, 4, kv_heads=kv_heads, head_dim=3)
    parts = ("query", "key", "value", "output")
    denses = [getattr(theirs, f"_{part}_dense") for part in parts]
    for ours_linear, dense in zip((ours.query, ours.key, ours.value, ours.out), denses, strict=True):
        kernel, bias = (weight.value.detach() for weight in dense.weights)
        _copy(ours_linear, kernel, bias, out=ours_linear is ours.out)
    for mask, theirs_mask in (
        (None, None),
        (regard.Lengths(torch.tensor([3, 7])), (torch.arange(K) < torch.tensor([[3], [7]])).unsqueeze(1)),
    ):
        want, weights = theirs(q, v, k, return_attention_scores=True, attention_mask=theirs_mask)
        got = ours.attend(q, k, v, mask=mask, need=Need(weights=True))
        torch.testing.assert_close(got.out, want.detach(), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(got.weights, weights.detach(), rtol=1e-4, atol=1e-5)
