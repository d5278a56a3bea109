"""A native encoding of a short source equals that of the layers."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.kernels import native_library
from regard.layers import native_decoder
from regard.models import transformer
from regard.models.transformer import Transformer

here = pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))


def make(**options: Any) -> Transformer:
    torch.manual_seed(0)
    settings = {"width": 24, "layers": 2, "heads": 3, "feed": 37} | options
    return Transformer(31, 29, **settings).eval()


def encodings(model: Transformer, sentences: int, length: int, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Native and by layers; the first sentence has no tokens, others have padding."""
    torch.manual_seed(1)
    source, lengths = torch.randint(1, 31, (sentences, length)), torch.arange(sentences) * 3 % (length + 1)
    with torch.no_grad(), monkeypatch.context() as patch:
        x = model.source_place(model.scale * model.source(source))
        native = native_decoder.native_encode(model.encoder, model.source_norm, x, lengths)
        assert torch.equal(model.encode(source, lengths), native)
        patch.setattr(transformer, "native_encode", lambda *_: None)
        return [native, model.encode(source, lengths)]


@here
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("sentences", "length"), [(1, 5), (2, 3), (3, 11), (7, 13)])
def test_encodings_equal_those_of_the_layers(
    sentences: int, length: int, dtype: torch.dtype, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_library, "LEVEL", level)
    torch.testing.assert_close(*encodings(make().to(dtype), sentences, length, monkeypatch), rtol=1e-5, atol=1e-5)


@here
@pytest.mark.parametrize(
    "options", [{"norm": "post"}, {"positions": "learned", "longest": 9}, {"layers": 1, "heads": 1}], ids=str
)
def test_variants(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.testing.assert_close(*encodings(make(**options), 3, 7, monkeypatch), rtol=1e-5, atol=1e-5)


@here
def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(width=96, heads=4, feed=768, layers=3)
    torch.set_num_threads(3)
    torch.testing.assert_close(*encodings(model, 11, 17, monkeypatch), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{"positions": "rotary"}, {"attention": "additive"}, {"activation": torch.tanh}])
def test_other_layers_encode_themselves(options: dict[str, Any]) -> None:
    model, x = make(**options), torch.randn(2, 5, 24)
    with torch.no_grad():
        assert native_decoder.native_encode(model.encoder, model.source_norm, x, torch.tensor([5, 3])) is None


def test_gradients_dropout_and_hooks_are_kept() -> None:
    model, source, lengths = make(dropout=0.5), torch.randint(1, 31, (2, 5)), torch.tensor([5, 3])
    model.encode(source, lengths).sum().backward()
    assert all(parameter.grad is not None for parameter in model.encoder.parameters())
    with torch.no_grad():
        same = model.encode(source, lengths)
        seen: list[int] = []
        handle = model.encoder[1].feed.register_forward_hook(lambda *_: seen.append(1))  # type: ignore[union-attr]
        torch.testing.assert_close(model.encode(source, lengths), same)
        assert seen == [1]
        handle.remove()
        model.train()
        assert not torch.allclose(model.encode(source, lengths), model.encode(source, lengths))
