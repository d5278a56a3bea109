"""Models of transformers that attend in blocks or bands, against the weights that they report themselves."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import regard

transformers = pytest.importorskip("transformers")

SIZES: dict[str, Any] = {
    "vocab_size": 31,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 40,
    "initializer_range": 0.4,
}
TOKENS = torch.randint(3, 31, (2, 24), generator=torch.Generator().manual_seed(0))


def run(model: Any, **inputs: Any) -> tuple[Any, regard.recording.Recording]:
    np.random.seed(0)  # noqa: NPY002 - BigBird draws its random blocks from it
    with torch.no_grad(), regard.record(model) as recording:
        model(**inputs)
    np.random.seed(0)  # noqa: NPY002
    with torch.no_grad():
        return model(**inputs, output_attentions=True), recording


def unbanded(band: Tensor, marked: Tensor, window: int) -> Tensor:  # "b l h c", "b l" -> "b h l l"
    """Longformer's own layout: columns of the marked tokens, then those of 2·window + 1 neighbours."""
    b, length, h, columns = band.shape
    count = columns - 2 * window - 1
    weights = torch.zeros(b, h, length, length)
    for sample in range(b):
        for i in range(length):
            for n, j in enumerate(marked[sample].nonzero().flatten().tolist()[:count]):
                weights[sample, :, i, j] += band[sample, i, :, n]
            for j in range(max(i - window, 0), min(i + window + 1, length)):
                weights[sample, :, i, j] += band[sample, i, :, count + j - i + window]
    return weights


@pytest.mark.parametrize("has_global", [False, True])
def test_longformer(has_global: bool) -> None:
    torch.manual_seed(0)
    model = transformers.LongformerModel(transformers.LongformerConfig(attention_window=4, **SIZES)).eval()
    marked = torch.zeros_like(TOKENS)
    marked[:, [0, 9]] = int(has_global)
    reported, recording = run(model, input_ids=TOKENS, global_attention_mask=marked)
    assert [m.name for m in recording] == [f"encoder.layer.{n}.attention.self" for n in range(2)]
    for n, recorded_map in enumerate(recording):
        want = unbanded(reported.attentions[n].transpose(1, 2), marked, 2)
        if has_global:
            rows = reported.global_attentions[n]  # "b h l g"
            want[:, :, [0, 9]] = rows.transpose(-1, -2)
        assert recorded_map.verified
        assert (recorded_map.step, recorded_map.captured_from) == (0, "pieces")
        torch.testing.assert_close(recorded_map.weights.dense(), want, rtol=0.0, atol=1e-5)


def test_big_bird() -> None:
    torch.manual_seed(0)
    config = transformers.BigBirdConfig(block_size=2, num_random_blocks=1, **SIZES)
    reported, recording = run(transformers.BigBirdModel(config).eval(), input_ids=TOKENS)
    assert [m.call for m in recording] == [0, 0]
    for recorded_map, want in zip(recording, reported.attentions, strict=True):
        assert recorded_map.verified
        assert (recorded_map.step, recorded_map.captured_from) == (0, "pieces")
        weights = recorded_map.weights.dense()
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 24))
        # where a random block is also a neighbour, the model reports the weight of one of both
        is_whole = (want.sum(-1) - 1).abs() < 1e-5
        assert is_whole.float().mean() > 0.15
        torch.testing.assert_close(weights[is_whole], want[is_whole], rtol=0.0, atol=1e-5)
        assert bool((weights - want > -1e-5).all())


def test_mini_max_names_its_linear_layer() -> None:
    torch.manual_seed(0)
    config = transformers.MiniMaxConfig(
        num_key_value_heads=3, head_dim=8, num_local_experts=2, num_experts_per_tok=1, block_size=8, **SIZES
    )
    assert config.layer_types == ["full_attention", "linear_attention"]
    model = transformers.MiniMaxModel(config).eval()
    message = r"record found no weights in 'layers\.1\.self_attn', which ran and is attention by its name"
    with torch.no_grad(), pytest.warns(UserWarning, match=message), regard.record(model) as recording:
        model(input_ids=TOKENS)
    assert recording.names == ("layers.0.self_attn",)
