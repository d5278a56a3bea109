"""A native step of a Transformer's decoder, and a native encoding of a short source, equal those of the layers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard.kernels import native_library
from regard.layers import native_decoder
from regard.models import transformer
from regard.models.transformer import Transformer, TransformerState

here = pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
variants = pytest.mark.parametrize(
    "options", [{"norm": "post"}, {"positions": "learned", "longest": 9}, {"layers": 1, "heads": 1}], ids=str
)


def make(**options: Any) -> Transformer:
    torch.manual_seed(0)
    settings = {"width": 24, "layers": 2, "heads": 3, "feed": 37} | options
    return Transformer(31, 29, **settings).eval()


def start(model: Transformer, sentences: int) -> TransformerState:
    source = torch.randint(1, 31, (sentences, 7))
    return model.init_state(source, torch.arange(sentences) % 7 + 1)


def run(model: Transformer, sentences: int, count: int, native: bool, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The logits of some steps in which hypotheses are multiplied, exchanged and dropped."""
    torch.manual_seed(1)
    ran = []

    def step(*arguments: Any) -> Any:
        result = native_decoder.native_step(*arguments) if native else None
        ran.append(result is not None)
        return result

    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(transformer, "native_step", step)
        state, logits = start(model, sentences), []
        for t in range(6):
            n = 1 if t == 0 else count
            found = model.step(torch.randint(1, 29, (sentences, n)), state)
            logits.append(found.logits)
            state = found.state.reorder(torch.randint(0, n, (sentences, count)))
        if sentences > 1:
            state = state.select_sentences(torch.arange(1, sentences))
            logits.append(model.step(torch.randint(1, 29, (sentences - 1, count)), state).logits)
        state = state.reorder(torch.zeros(len(state.lengths), 1, dtype=torch.long))
        logits.append(model.step(torch.randint(1, 29, (len(state.lengths), 1)), state).logits)
    assert all(ran) if native else not any(ran)
    return logits


@here
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("sentences", "count"), [(1, 1), (1, 5), (2, 3), (11, 4)])
def test_native_steps_equal_those_of_the_layers(
    sentences: int, count: int, dtype: torch.dtype, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_library, "LEVEL", level)
    model = make().to(dtype)
    got = run(model, sentences, count, True, monkeypatch)
    for one, other in zip(got, run(model, sentences, count, False, monkeypatch), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@here
@variants
def test_variants(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(**options)
    got = run(model, 3, 2, True, monkeypatch)
    for one, other in zip(got, run(model, 3, 2, False, monkeypatch), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@here
def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(width=96, heads=4, feed=384)
    torch.set_num_threads(1)
    alone = run(model, 40, 4, True, monkeypatch)
    torch.set_num_threads(3)
    for one, other in zip(run(model, 40, 4, True, monkeypatch), alone, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_steps_with_and_without_weights_mix() -> None:
    model = make()
    tokens = torch.randint(1, 29, (2, 5))
    with torch.no_grad():
        one = other = start(model, 2)
        for t in range(5):
            first = model.step(tokens[:, t : t + 1], one, weights=t % 2 == 1)
            second = model.step(tokens[:, t : t + 1], other, weights=True)
            torch.testing.assert_close(first.logits, second.logits, rtol=1e-5, atol=1e-5)
            one, other = first.state, second.state


CHANGES: dict[str, Callable[[Any], object]] = {
    "gelu": lambda model: setattr(model.decoder[0].feed, "activation", nn.functional.gelu),
    "norm": lambda model: setattr(model, "target_norm", nn.Identity()),
    "epsilon": lambda model: setattr(model.decoder[1].around_feed.norm, "eps", 0.5),
    "order": lambda model: model.decoder.insert(0, model.decoder.pop(1)),
    "data": lambda model: model.decoder[0].cross_attention.out.weight.data.neg_(),
    "mask": lambda model: setattr(model.decoder[1].self_attention.attention, "mask", regard.Window(1, 0)),
}


@for_each("change", CHANGES)
def test_a_plan_is_never_stale(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    tokens = torch.randint(1, 29, (2, 5))

    def decoded() -> Tensor:
        with torch.no_grad():
            state, logits = start(model, 2), []
            for t in range(5):
                found = model.step(tokens[:, t : t + 1], state)
                logits.append(found.logits)
                state = found.state
            return torch.cat(logits, 1)

    decoded()
    CHANGES[change](model)
    torch.manual_seed(3)
    got = decoded()
    monkeypatch.setattr(transformer, "native_step", lambda *_: None)
    torch.manual_seed(3)
    torch.testing.assert_close(got, decoded(), rtol=1e-5, atol=1e-5)


def test_hooks_of_layers_fire() -> None:
    model, seen = make(), []
    with torch.no_grad():
        state = start(model, 1)
        model.step(torch.ones(1, 1, dtype=torch.long), state)
        model.decoder[0].register_forward_hook(lambda *_: seen.append(0))
        model.step(torch.ones(1, 1, dtype=torch.long), state)
    assert seen == [0]


def test_gradients_are_kept() -> None:
    model = make()
    state = start(model, 2)
    logits = model.step(torch.ones(2, 1, dtype=torch.long), state).logits
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.decoder.parameters())


@here
def test_padding_never_reaches_a_step() -> None:
    model = make()
    with torch.no_grad():
        state = start(model, 3)
        broken = tuple(replace(cache, keys=cache.keys.clone(), values=cache.values.clone()) for cache in state.sources)
        for cache in broken:
            for n, length in enumerate(state.lengths.tolist()):
                cache.keys[n, :, length:] = torch.nan
                cache.values[n, :, length:] = torch.nan
        tokens = torch.ones(3, 1, dtype=torch.long)
        want = model.step(tokens, state).logits
        assert torch.equal(model.step(tokens, replace(state, sources=broken)).logits, want)


@here
def test_lengths_beyond_the_source_are_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens = make(), torch.ones(3, 1, dtype=torch.long)
    with torch.no_grad():
        state = replace(start(model, 3), lengths=torch.tensor([99, 0, 3]))
        got = model.step(tokens, state).logits
        monkeypatch.setattr(transformer, "native_step", lambda *_: None)
        torch.testing.assert_close(got, model.step(tokens, state).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm", [nn.LayerNorm(24, elementwise_affine=False), nn.LayerNorm(24, bias=False)], ids=str)
def test_a_last_norm_without_weights_normalises(norm: nn.LayerNorm, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    model.source_norm, model.target_norm = norm, norm
    got = run(model, 2, 1, norm.weight is not None, monkeypatch)
    for one, other in zip(got, run(model, 2, 1, False, monkeypatch), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    source, lengths = torch.randint(1, 31, (2, 5)), torch.tensor([5, 5])
    with torch.no_grad():
        torch.testing.assert_close(model.encode(source, lengths).mean(-1), torch.zeros(2, 5), rtol=0.0, atol=1e-5)


def test_one_length_serves_all_sources() -> None:
    """As in the layers, where it broadcasts; a native call would read lengths that are not there."""
    model, source = make(), torch.randint(1, 31, (3, 5))
    with torch.no_grad():
        got = model.encode(source, torch.tensor([4]))
        torch.testing.assert_close(
            got[:, :4], model.encode(source, torch.tensor([4, 4, 4]))[:, :4], rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model.decoder[0].feed, "outer", nn.Linear(11, 24)),
        lambda model: setattr(model.target_norm, "weight", nn.Parameter(torch.ones(5))),
    ],
    ids=["feed", "norm"],
)
def test_parameters_of_another_shape_are_never_read(change: Callable[[Transformer], None]) -> None:
    model = make()
    with torch.no_grad():
        state = start(model, 1)
        change(model)
        with pytest.raises(RuntimeError, match="cannot be multiplied|Expected weight"):
            model.step(torch.ones(1, 1, dtype=torch.long), state)


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
@variants
def test_variants_of_encoders(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.testing.assert_close(*encodings(make(**options), 3, 7, monkeypatch), rtol=1e-5, atol=1e-5)


@here
def test_threads_do_not_change_encodings(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(width=96, heads=4, feed=768, layers=3)
    torch.set_num_threads(3)
    torch.testing.assert_close(*encodings(model, 11, 17, monkeypatch), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{"positions": "rotary"}, {"attention": "additive"}, {"activation": torch.tanh}])
def test_other_layers_encode_themselves(options: dict[str, Any]) -> None:
    model, x = make(**options), torch.randn(2, 5, 24)
    with torch.no_grad():
        assert native_decoder.native_encode(model.encoder, model.source_norm, x, torch.tensor([5, 3])) is None


def test_gradients_dropout_and_hooks_of_encoders_are_kept() -> None:
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
