"""The attention of the heads of a Transformer, by names."""

import pytest
import torch

import regard
from regard.biases import Selective
from regard.layers.head_attention import head_attention


def test_an_attention_with_a_bias_of_all_heads_is_built_for_their_number() -> None:
    attention = head_attention("selective", 4, None, 5)
    assert isinstance(attention, regard.Attention)
    assert isinstance(attention.bias, Selective)
    assert attention.bias.heads == 5
    x = torch.randn(2, 7, 20)
    heads = regard.MultiHead(20, 5, attention=attention)
    torch.testing.assert_close(heads(x)[:, :3], heads(x[:, :3]))
    with pytest.raises(
        ValueError, match=r"^attention='selective' adds a bias to the scores, and ALiBi\(heads=5\) another"
    ):
        head_attention("selective", 4, regard.ALiBi(5), 5)
