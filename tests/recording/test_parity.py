"""Models of transformers as they run, against the weights that they give when they are told to form them."""

from pathlib import Path

import pytest
import torch

from regard.recording.record import record
from regard.recording.recording import Recording

transformers = pytest.importorskip("transformers")
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])


def bert() -> torch.nn.Module:
    torch.manual_seed(3)
    sizes = {"hidden_size": 30, "num_hidden_layers": 3, "num_attention_heads": 5, "intermediate_size": 20}
    # larger than it is wont, so that heads look somewhere
    config = transformers.BertConfig(vocab_size=11, max_position_embeddings=16, initializer_range=0.4, **sizes)
    return transformers.BertModel(config).eval()


def test_relevance_of_a_fused_model() -> None:
    """Chefer's rule by autograd through the eager weights, and from what the fused kernel lets through."""
    model = bert()
    with record(model, gradients=True) as tape:
        model(IDS).last_hidden_state[0, 0, 7].backward()
    found = tape.relevance()[0].weights.dense()[0, 0]
    model.set_attn_implementation("eager")
    out = model(IDS, output_attentions=True)
    slopes = torch.autograd.grad(out.last_hidden_state[0, 0, 7], out.attentions)
    right = torch.eye(IDS.shape[1])
    for slope, weights in zip(slopes, out.attentions, strict=True):
        right = right + (slope * weights).clamp_min(0).mean(1)[0] @ right
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-6)
    assert (right - torch.eye(IDS.shape[1])).amax() > 0.01


def test_a_padded_batch_is_saved_and_comes_back(tmp_path: Path) -> None:
    model = bert()
    ids, mask = IDS.repeat(2, 1), torch.ones(2, 7, dtype=torch.long)
    mask[1, 4:] = 0
    with torch.no_grad(), record(model) as tape:
        model(ids, attention_mask=mask)
    back = Recording.load(tape.save(tmp_path))
    for one, other in zip(tape, back, strict=True):
        torch.testing.assert_close(one.weights.dense(), other.weights.dense(), rtol=0, atol=1e-6)
        assert not other.weights.dense()[1, :, :, 4:].any()
    one = tape.select(heads=[3, 1], sample=1)
    other = Recording.load(one.save(tmp_path / "some.safetensors"))
    torch.testing.assert_close(one[0].weights.dense(), other[0].weights.dense(), rtol=0, atol=1e-6)
    assert other[0].heads == (3, 1)
