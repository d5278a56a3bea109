"""Classifiers of clips: batch = single, growing = whole, weights are shares of real steps, gradients everywhere."""

from typing import Any

import pytest
import torch
from tests.for_each import for_each
from tests.models.clips.cases import CASES, CHANNELS, CLASSES, SIZE
from torch import Tensor

from regard.attn.catalogue import MECHANISMS
from regard.gates.channel import SqueezeExcite
from regard.layers.query_pooling import POSITIONAL
from regard.models.clips.clip_convnet import ClipConvNet
from regard.models.clips.clip_model import ClipModel

LENGTHS = torch.tensor([5, 7, 2, 1])
every_model = for_each("name", CASES)


def build(name: str, **options: Any) -> ClipModel:
    """In evaluation, with statistics of batch norms that are not those of the start."""
    torch.manual_seed(0)
    model = CASES[name](**options)
    with torch.no_grad():
        for key, t in model.state_dict().items():
            if "running" in key or (t.ndim == 1 and "norm" in key):
                t.uniform_(0.5, 1.5)
    return model.double().eval()


def clips(model: ClipModel, lengths: Tensor = LENGTHS, padding: float = 0.0) -> Tensor:
    torch.manual_seed(1)
    size = () if model.is_signal else SIZE
    longest = int(lengths.max())
    x = torch.randn(len(lengths), longest, CHANNELS, *size, dtype=torch.float64)
    x[torch.arange(longest) >= lengths[:, None]] = padding
    return x


@every_model
@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_a_clip_in_a_batch_is_the_clip_alone(name: str, causal: bool) -> None:
    model = build(name, causal=causal)
    lengths = LENGTHS * (9 if model.is_signal else 1)
    x = clips(model, lengths)
    logits, weights = model.attend(x, lengths)
    torch.testing.assert_close(model(x, lengths), logits, rtol=0, atol=1e-10)
    # whatever stands behind the end of a clip
    torch.testing.assert_close(model(clips(model, lengths, 7.0), lengths), logits, rtol=0, atol=1e-10)
    for n, length in enumerate(lengths.tolist()):
        alone = model.attend(x[n : n + 1, :length], lengths[n : n + 1])
        torch.testing.assert_close(alone.logits[0], logits[n], rtol=0, atol=1e-10)
        if weights is not None:
            torch.testing.assert_close(alone.weights[0], weights[n, :length], rtol=0, atol=1e-10)
            assert not weights[n, length:].any()
            assert float(weights[n].sum()) == pytest.approx(1)


@every_model
def test_a_growing_clip_is_the_whole_clip(name: str) -> None:
    model = build(name, causal=True)
    x = clips(model, torch.tensor([33 if model.is_signal else 7]))
    growing = model.growing(x)
    assert growing.shape == (x.shape[1], CLASSES)
    for end in range(1, x.shape[1] + 1):
        torch.testing.assert_close(growing[end - 1], model(x[:, :end])[0], rtol=0, atol=1e-10)
    # a later step changes no earlier answer
    changed = x.clone()
    changed[:, -1] += 3
    torch.testing.assert_close(model.growing(changed)[:-1], growing[:-1], rtol=0, atol=1e-10)


@every_model
def test_every_parameter_receives_a_gradient(name: str) -> None:
    model = build(name).train()
    x = clips(model, LENGTHS * 9 if model.is_signal else LENGTHS)
    before = x.clone()
    model(x, LENGTHS * 9 if model.is_signal else LENGTHS).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())
    assert torch.equal(x, before)


@every_model
def test_wrong_inputs(name: str) -> None:
    model = build(name)
    x = clips(model)
    expected = "samples, 2 channels" if model.is_signal else "frames, 2 channels, height, width"
    with pytest.raises(ValueError, match=rf"x must be \(clips, {expected}\), got .*; x.unsqueeze\(2\) adds an axis"):
        model(x[:, :, :1])
    with pytest.raises(ValueError, match=r"lengths must be one number from 1 to 7 per clip, got \[0, 7, 2, 1\]; count"):
        model(x, torch.tensor([0, 7, 2, 1]))
    with pytest.raises(
        ValueError, match="growing needs a causal model, whose states depend on no later step; build it"
    ):
        model.growing(x[:1])
    with pytest.raises(ValueError, match=r"growing takes one clip, got 4; call it for each, x\[n : n \+ 1\]"):
        build(name, causal=True).growing(x)


def test_a_causal_network_has_no_gate() -> None:
    with pytest.raises(ValueError, match="a gate weighs a map by all its frames, and a causal network reads no later"):
        ClipConvNet(1, 2, gate=SqueezeExcite, causal=True)


def test_places_of_a_transformer_are_fixed() -> None:
    model = build("transformer")
    with pytest.raises(
        ValueError, match=r"x must have frames of \(11, 13\), got \(11, 12\); the places of a frame are"
    ):
        model(clips(model)[..., :12])


@pytest.mark.parametrize("attention", sorted({*MECHANISMS} - POSITIONAL - {"hard", "hard-argmax"}))
@pytest.mark.parametrize("name", ["frames", "frames-signal"])
@torch.no_grad()
def test_any_mechanism_reads_clips(name: str, attention: str) -> None:
    model = build(name, attention=attention)
    lengths = LENGTHS * (9 if model.is_signal else 1)
    x = clips(model, lengths)
    logits = model(x, lengths)
    for n, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(model(x[n : n + 1, :length])[0], logits[n], rtol=0, atol=1e-10)


@for_each("attention", sorted(POSITIONAL))
def test_a_learned_query_has_no_position(attention: str) -> None:
    with pytest.raises(ValueError, match=f"attention='{attention}' weighs keys by their distance from the query"):
        build("frames", attention=attention)


def test_a_stride_of_zero_is_not_taken_for_none() -> None:
    with pytest.raises(ValueError, match="stem_stride must be"):
        ClipConvNet(CHANNELS, CLASSES, stem_stride=0)
    with pytest.raises(ValueError, match=r"depths must be blocks of each stage, 1 or more, got \(\)"):
        ClipConvNet(CHANNELS, CLASSES, depths=())
