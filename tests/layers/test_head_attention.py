"""The attention of the heads of a Transformer, by names."""

import pytest
import torch

import regard
from regard.biases import Selective
from regard.layers.head_attention import head_parts


def test_an_attention_with_a_bias_of_all_heads_is_built_for_their_number() -> None:
    parts = head_parts("selective", 20, 5, 4)
    assert isinstance(parts["attention"].bias, Selective)
    assert parts["attention"].bias.heads == 5
    x = torch.randn(2, 7, 20)
    heads = regard.MultiHead(20, 5, **parts)
    torch.testing.assert_close(heads(x)[:, :3], heads(x[:, :3]))
    with pytest.raises(
        ValueError, match=r"^attention='selective' adds a bias to the scores, and ALiBi\(heads=5\) another"
    ):
        head_parts("selective", 20, 5, 4, regard.ALiBi(5))


def test_differential_layers_have_the_number_of_their_layer() -> None:
    """Each layer begins with the factor of its depth."""
    model = regard.models.GPT2(11, width=16, layers=3, heads=2, attention="differential")
    assert [layer.attention.difference.layer for layer in model.stack.layers] == [1, 2, 3]
