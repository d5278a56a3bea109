"""nn.MultiheadAttention and nn.Transformer: all heads, before dropout, in training, evaluation and on the fast path."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard

B, T, S, D, H = 2, 5, 7, 12, 4


def weights_of(layer: nn.MultiheadAttention, q: Tensor, k: Tensor, **masks: Any) -> Tensor:
    """The layer's own, of every head, without dropout."""
    training = layer.training
    with torch.no_grad():
        found = layer.eval()(q, k, k, need_weights=True, average_attn_weights=False, **masks)[1]
    layer.train(training)
    return found


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("cross", [False, True])
def test_multihead_attention_gives_all_heads_before_dropout(training: bool, need_weights: bool, cross: bool) -> None:
    layer = nn.MultiheadAttention(D, H, dropout=0.4, batch_first=True).train(training)
    q = torch.randn(B, T, D)
    k = torch.randn(B, S, D) if cross else q
    padding = torch.zeros(B, k.shape[1], dtype=torch.bool)
    padding[1, 3:] = True
    torch.manual_seed(3)
    want = layer(q, k, k, key_padding_mask=padding, need_weights=need_weights)
    torch.manual_seed(3)
    with regard.record(layer) as tape:
        got = layer(q, k, k, key_padding_mask=padding, need_weights=need_weights)
    torch.testing.assert_close(got, want, rtol=0.0, atol=1e-6)
    (one,) = tape
    assert (one.captured_from, one.kind) == ("multi_head_attention", "cross" if cross else "self")
    assert one.verified
    assert type(one.weights).__name__ == "LazyMap"
    same = weights_of(layer, q, k, key_padding_mask=padding)
    torch.testing.assert_close(one.weights.dense(), same, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [{"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 5, "vdim": 5}, {"bias": False}],
    ids=lambda options: next(iter(options)),
)
def test_every_option_of_the_layer_is_heard(options: dict[str, Any]) -> None:
    layer = nn.MultiheadAttention(D, H, **options).eval()
    q, k = torch.randn(T, B, D), torch.randn(S, B, options.get("kdim", D))
    mask = torch.randn(B * H, T, S)
    for need_weights in (False, True):
        with regard.record(layer) as tape:
            layer(q, k, k, attn_mask=mask, need_weights=need_weights)
        assert tape[0].verified
        same = weights_of(layer, q, k, attn_mask=mask)
        torch.testing.assert_close(tape[0].weights.dense(), same, rtol=0.0, atol=1e-6)


def test_a_call_without_a_batch_has_one_sample() -> None:
    layer = nn.MultiheadAttention(D, H).eval()
    q = torch.randn(T, D)
    for need_weights in (False, True):
        with regard.record(layer) as tape:
            layer(q, q, q, need_weights=need_weights)
        assert tape[0].shape == (1, H, T, T)
        assert tape[0].verified


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_an_encoder_with_padding_gives_the_same_where_there_is_none(training: bool, grad: bool) -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, H, 20, batch_first=True), 2).train(training)
    x = torch.randn(B, S, D)
    padding = torch.arange(S) >= torch.tensor([S, 4])[:, None]
    with torch.set_grad_enabled(grad), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of nested tensors on its fast path
        torch.manual_seed(3)
        want = encoder(x, src_key_padding_mask=padding)
        torch.manual_seed(3)
        with regard.record(encoder) as tape:
            got = encoder(x, src_key_padding_mask=padding)
    torch.testing.assert_close(got[~padding], want[~padding], rtol=0.0, atol=2e-6)
    assert list(tape.names) == ["layers.0.self_attn", "layers.1.self_attn"]
    for one in tape:
        assert one.verified
        assert one.certificate is not None
        assert one.certificate <= 1e-5
    first = weights_of(encoder.layers[0].self_attn, x, x, key_padding_mask=padding)
    torch.testing.assert_close(tape[0].weights.dense(), first, rtol=0.0, atol=1e-6)


def test_a_whole_transformer_is_named_and_told_apart() -> None:
    model = nn.Transformer(D, H, 2, 1, 20, batch_first=True).eval()
    source, target = torch.randn(B, S, D), torch.randn(B, T, D)
    causal = nn.Transformer.generate_square_subsequent_mask(T)
    with torch.no_grad():
        want = model(source, target, tgt_mask=causal)
        with regard.record(model) as tape:
            got = model(source, target, tgt_mask=causal)
    torch.testing.assert_close(got, want, rtol=0.0, atol=2e-6)
    assert [(one.name, one.kind, one.shape[1:]) for one in tape] == [
        ("encoder.layers.0.self_attn", "self", (H, S, S)),
        ("encoder.layers.1.self_attn", "self", (H, S, S)),
        ("decoder.layers.0.self_attn", "self", (H, T, T)),
        ("decoder.layers.0.multihead_attn", "cross", (H, T, S)),
    ]
    assert not tape[2].weights.dense().triu(1).any()
    assert all(one.verified for one in tape)
