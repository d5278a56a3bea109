"""Models of transformers as they run, against the weights that they give when they are told to form them."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

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


def gpt2() -> torch.nn.Module:
    torch.manual_seed(3)
    sizes = {"n_embd": 30, "n_layer": 3, "n_head": 5, "n_positions": 32}
    config = transformers.GPT2Config(vocab_size=11, initializer_range=0.4, bos_token_id=0, eos_token_id=0, **sizes)
    return transformers.GPT2LMHeadModel(config).eval()


def formed(model: torch.nn.Module, ids: Tensor) -> tuple[Tensor, ...]:
    model.set_attn_implementation("eager")
    return model(ids, output_attentions=True).attentions


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


def test_rollout_and_entropy_of_a_fused_model() -> None:
    model = bert()
    with torch.no_grad(), record(model) as tape:
        model(IDS)
    maps = [one.detach().mean(1) for one in formed(model, IDS)]
    through = torch.eye(IDS.shape[1])
    for one in maps:
        through = (0.5 * one[0] + 0.5 * torch.eye(IDS.shape[1])) @ through
    torch.testing.assert_close(tape.rollout()[0].weights.dense()[0, 0], through, rtol=0, atol=1e-6)
    for found, one in zip(tape.entropy(), formed(model, IDS), strict=True):
        torch.testing.assert_close(found, -(one * one.log()).sum(-1).detach(), rtol=0, atol=1e-5)


def test_a_generation_is_stitched_to_what_one_pass_has(tmp_path: Path) -> None:
    model = gpt2()
    with torch.no_grad(), record(model) as tape:
        found = model.generate(IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=5, do_sample=False)
    assert len(tape) > 3
    whole = tape.stitch()
    assert len(whole) == 3
    n = found.shape[1] - 1  # nothing was asked of the last
    # one pass and many steps round differently: the states themselves differ by that much
    right = formed(model, found[:, :n])
    for one, weights in zip(whole, right, strict=True):
        assert one.verified
        torch.testing.assert_close(one.weights.dense(), weights.detach(), rtol=0, atol=5e-6)
    back = Recording.load(whole.save(tmp_path))
    for one, weights in zip(back, right, strict=True):
        torch.testing.assert_close(one.weights.dense(), weights.detach(), rtol=0, atol=5e-6)
    torch.testing.assert_close(back.rollout()[0].weights.dense().sum(-1), torch.ones(1, 1, n))


def test_two_texts_through_one_model() -> None:
    model = bert()
    other = IDS.flip(-1)
    tapes = []
    for ids in (IDS, other):
        with torch.no_grad(), record(model) as tape:
            model(ids)
        tapes.append(tape)
    found = tapes[0].difference(tapes[1])
    for one, a, b in zip(found, formed(model, IDS), formed(model, other), strict=True):
        # the rounding of two maps
        torch.testing.assert_close(one.weights.dense(), (a - b).detach(), rtol=0, atol=2e-6)


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
