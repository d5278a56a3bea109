"""Vectors of texts: alone, packed, in any order, with gradients; and those of transformers' encoder."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.for_each import for_each
from tests.tasks.encoders import PIECES, bert_folder

import regard
from regard.attn.module_snapshot import derived
from regard.layers import packed_layers
from regard.layers.packed_texts import PackedTexts
from regard.models.bert import BERT
from regard.models.pretrained import load_pretrained
from regard.models.transfer import text_embedder
from regard.models.transfer.text_embedder import TextEmbedder
from regard.models.transfer.text_encoder import TextEncoder
from regard.positions import DynamicNTKScaling, LinearScaling

TEXTS = [[3, 4, 5, 6, 7], [5, 9], [8], [4, 4, 4], [10, 2, 9, 8, 1, 0, 3], [5, 9]]


def embedder(pooling: str = "mean", **options: Any) -> TextEmbedder:
    torch.manual_seed(0)
    bert = BERT(11, **{"width": 12, "layers": 2, "heads": 3, "feed": 10, "longest": 9, **options})
    for p in bert.parameters():
        p.data.add_(torch.randn_like(p), alpha=0.2)
    return TextEmbedder(TextEncoder(bert), pooling=pooling).eval()


def by_itself(model: TextEmbedder, text: list[int]) -> torch.Tensor:
    """The vector by the layers themselves, as they run in training."""
    vector: torch.Tensor = model(PackedTexts.of([text])).detach()[0]
    return vector


MODELS: list[dict[str, Any]] = [
    {"pooling": "mean"},
    {"pooling": "first"},
    {"pooling": "max", "norm": "pre"},
    {"positions": "rotary", "norm": "pre"},
    {"positions": "sinusoidal", "activation": torch.tanh},
    {"positions": "alibi"},
    {"positions": "t5"},
    {"attention": "entmax"},
    {"attention": "additive"},
]


@for_each("options", MODELS)
def test_alone_packed_and_in_any_order(options: dict[str, Any]) -> None:
    model = embedder(**options)
    expected = torch.stack([by_itself(model, text) for text in TEXTS])
    torch.testing.assert_close(model.vectors(TEXTS), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.vectors(TEXTS[::-1]), expected.flip(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model(PackedTexts.of(TEXTS)).detach(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(expected.norm(dim=-1), torch.ones(len(TEXTS)))
    counts: list[int] = []
    model.vectors(TEXTS, counts.append)
    assert counts[-1] == len(TEXTS)


@pytest.mark.parametrize("options", [{}, {"norm": "pre"}, {"positions": "rotary"}])
def test_plain_layers_run_packed(options: dict[str, Any]) -> None:
    layers = embedder(**options).encoder.bert.layers
    assert derived((layers,), packed_layers._plan) is not None
    for attention in ("entmax", "additive"):
        assert packed_layers._plan(embedder(attention=attention).encoder.bert.layers) is None
    assert packed_layers._plan(embedder(positions="t5").encoder.bert.layers) is None
    rotated = embedder(positions="rotary").encoder.bert.layers
    for scaling, is_plain in ((LinearScaling(2.0), True), (DynamicNTKScaling(2.0, 3), False)):
        rotated[0].attention.rotate = regard.Rotary(4, rotary_dim=2, scaling=scaling)
        # packed texts would be rotated by the length of the longest
        assert (packed_layers._plan(rotated) is not None) == is_plain
    x = torch.randn(3, 12)
    assert packed_layers.packed_layers(layers, x, [3], torch.arange(3)) is None, "gradients are wanted"


@for_each("options", MODELS)
def test_many_packs_read_the_weights_as_they_are_now(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_embedder, "MOST_TOKENS", 7)
    model = embedder(**options)
    for factor in (1.0, 0.9):
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(factor)
        expected = torch.stack([by_itself(model, text) for text in TEXTS])
        torch.testing.assert_close(model.vectors(TEXTS), expected, rtol=1e-5, atol=1e-6)


def test_hooks_and_recordings_see_every_layer() -> None:
    model, seen = embedder(), []
    handle = model.encoder.bert.layers[1].register_forward_hook(lambda *_: seen.append(1))
    model.vectors(TEXTS)
    assert seen
    handle.remove()
    with regard.record(model) as recording, torch.no_grad():
        model.vectors(TEXTS[:1])
    assert len(recording) == 2
    assert all(item.verified for item in recording)


def test_gradients_reach_every_parameter() -> None:
    model = embedder().train()
    model(PackedTexts.of(TEXTS)).square().mul(torch.arange(12)).sum().backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # keys' biases shift all scores of a row alike
    assert [name for name in missing if not name.endswith("attention.key.bias")] == []


def test_training_mode_drops_activations() -> None:
    model = embedder(dropout=0.5).train()
    assert not torch.allclose(model.vectors(TEXTS), model.vectors(TEXTS))
    model.eval()
    assert torch.equal(model.vectors(TEXTS), model.vectors(TEXTS))


def test_vectors_of_transformers(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "bert")
    theirs = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    loaded = load_pretrained(folder)
    assert isinstance(loaded.model, BERT)
    model = TextEmbedder(TextEncoder(loaded.model)).eval()
    texts = [[n % len(PIECES) for n in text] for text in TEXTS]
    with torch.no_grad():
        for text, vector in zip(texts, model.vectors(texts), strict=True):
            states = theirs(torch.tensor([text])).last_hidden_state[0]
            expected = torch.nn.functional.normalize(states.mean(0), dim=-1)
            torch.testing.assert_close(vector, expected, rtol=1e-5, atol=1e-6)


def test_vectors_without_normalize() -> None:
    model = embedder()
    model.normalize = False
    assert not torch.allclose(model.vectors(TEXTS).norm(dim=-1), torch.ones(len(TEXTS)))
