"""quantize: laws of models with 8-bit weights, of regard, torch and transformers."""

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_model, save_model
from tests.refusals import Act, check_refusals
from torch import nn

import regard
from regard.attn.quantized_linear import QuantizedEmbedding, QuantizedLinear
from regard.decoding.beam import beam
from regard.decoding.greedy import greedy
from regard.decoding.prompts import prompt_batch
from regard.interop.quantize import is_quantized, quantize_like
from regard.layers.packed_texts import PackedTexts
from regard.models.bert import BERT
from regard.models.gpt2 import GPT2
from regard.models.transfer.text_embedder import TextEmbedder
from regard.models.transfer.text_encoder import TextEncoder
from regard.models.transformer import Transformer


def translator(**options: Any) -> Transformer:
    torch.manual_seed(0)
    return Transformer(41, 53, width=32, layers=2, heads=2, dropout=0.0, **options).eval()


def language_model() -> GPT2:
    torch.manual_seed(0)
    return GPT2(61, width=32, layers=2, heads=2, longest=40, dropout=0.0).eval()


def embedder() -> TextEmbedder:
    torch.manual_seed(0)
    return TextEmbedder(TextEncoder(BERT(61, width=32, layers=2, heads=2, dropout=0.0))).eval()


TEXTS = [[5, 6, 7], [8], [9, 10, 11, 12, 13], [3, 4]]


@pytest.mark.parametrize("activations", ["int8", "float32"])
def test_a_translator_is_close_and_its_batch_is_its_single_sentences(activations: str) -> None:
    model = translator(tied="target")
    quantized = copy.deepcopy(model)
    regard.quantize(quantized, activations=activations)
    sources = [torch.tensor(text) for text in TEXTS]
    source, lengths = nn.utils.rnn.pad_sequence(sources, batch_first=True), torch.tensor([len(text) for text in TEXTS])
    target = torch.randint(4, 53, (len(TEXTS), 6))
    with torch.no_grad():
        exact, logits = model(source, lengths, target), quantized(source, lengths, target)
        assert (logits - exact).norm() / exact.norm() < 0.05
        arguments: dict[str, Any] = {"bos": 1, "eos": 2}
        limits = torch.full_like(lengths, 7)
        together = beam(quantized, quantized.init_state(source, lengths, 3), limits=limits, size=3, **arguments)
        for n, text in enumerate(sources):
            state = quantized.init_state(text.unsqueeze(0), lengths[n : n + 1], 3)
            (alone,) = beam(quantized, state, limits=limits[:1], size=3, **arguments)
            assert [h.tokens for h in alone] == [h.tokens for h in together[n]]
            assert [h.log_prob for h in alone] == pytest.approx([h.log_prob for h in together[n]], abs=1e-4)


@pytest.mark.parametrize("activations", ["int8", "float32"])
def test_step_by_step_is_the_whole(activations: str) -> None:
    model = language_model()
    report = regard.quantize(model, activations=activations)
    assert {"embedding", "output"} <= set(report.layers)
    tokens = torch.randint(1, 61, (3, 9))
    with torch.no_grad():
        whole = model(tokens)
        state = model.init_state(tokens[:, :1])
        for t in range(1, 9):
            step = model.step(tokens[:, t : t + 1], state)
            state = step.state
            # rounding of activations may fall to the other side where float sums differ in the last bit
            torch.testing.assert_close(step.logits[:, 0], whole[:, t], rtol=0, atol=0.02 * float(whole.abs().max()))
        prompts = prompt_batch(TEXTS)
        limits = torch.full((len(TEXTS),), 5)
        arguments: dict[str, Any] = {"eos": 0, "forbidden": []}
        together = greedy(
            model, model.init_state(prompts.tokens, prompts.lengths), bos=prompts.last, limits=limits, **arguments
        )
        for n, text in enumerate(TEXTS):
            alone = prompt_batch([text])
            state = model.init_state(alone.tokens, alone.lengths)
            (found,) = greedy(model, state, bos=alone.last, limits=limits[:1], **arguments)
            assert found.tokens == together[n].tokens


def test_the_native_steps_are_the_layers() -> None:
    """With hooks the layers run one by one, in the same integers."""
    model = language_model()
    regard.quantize(model)
    tokens = torch.randint(1, 61, (2, 4))
    with torch.no_grad():
        fast = model.step(tokens[:, -1:], model.init_state(tokens[:, :-1])).logits
        model.stack.layers[0].register_forward_hook(lambda module, args, out: out)
        slow = model.step(tokens[:, -1:], model.init_state(tokens[:, :-1])).logits
    torch.testing.assert_close(fast, slow, rtol=0, atol=0.02 * float(slow.abs().max()))


def test_vectors_of_packed_texts() -> None:
    model = embedder()
    exact = model.vectors(TEXTS)
    regard.quantize(model)
    vectors = model.vectors(TEXTS)
    assert (vectors * exact).sum(-1).min() > 0.99
    with torch.no_grad():
        alone = torch.cat([model(PackedTexts.of([text])) for text in TEXTS])
    torch.testing.assert_close(vectors, alone, rtol=0, atol=0.01)


def test_the_loss_reads_the_8_bit_layer() -> None:
    model = language_model()
    regard.quantize(model)
    states, targets = torch.randn(5, 32), torch.randint(61, (5,))
    with torch.no_grad():
        total, nll = model.token_loss(states, targets, smoothing=0.1)
        expected = nn.functional.cross_entropy(model.output(states), targets, reduction="none", label_smoothing=0.1)
        torch.testing.assert_close(total, expected.sum())
        expected = nn.functional.cross_entropy(model.output(states), targets, reduction="none")
    torch.testing.assert_close(nll, expected)


def test_tied_weights_are_stored_once_and_round_trip(tmp_path: Path) -> None:
    model = language_model()
    exact = model.embedding.weight.detach().clone()
    report = regard.quantize(model)
    assert isinstance(model.embedding, QuantizedEmbedding)
    assert isinstance(model.output, QuantizedLinear)
    assert model.embedding.packed is model.output.packed
    assert report.bytes_after < report.bytes_before
    torch.testing.assert_close(model.embedding(torch.arange(61)), exact, rtol=0, atol=float(exact.abs().max()) / 200)
    other = language_model()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    quantize_like(other, model.state_dict(), "int8")
    other.load_state_dict(model.state_dict())
    tokens = torch.randint(1, 61, (2, 7))
    with torch.no_grad():
        assert torch.equal(other(tokens), model(tokens))
        save_model(model, str(tmp_path / "model.safetensors"))
        third = language_model()
        quantize_like(third, model.state_dict(), "int8")
        load_model(third, str(tmp_path / "model.safetensors"))
        assert torch.equal(third(tokens), model(tokens))
        assert torch.equal(copy.deepcopy(model)(tokens), model(tokens))
        buffer = io.BytesIO()
        torch.save(model.state_dict(), buffer)
        torch.testing.assert_close(copy.deepcopy(model).double()(tokens).float(), model(tokens), rtol=0, atol=0.05)


def test_the_weights_are_less_than_three_tenths() -> None:
    torch.manual_seed(0)
    model = GPT2(2000, width=128, layers=2, heads=4, longest=64)
    report = regard.quantize(model)
    assert report.ratio <= 0.3
    assert "native 8-bit products run" in report.explain() or "multiplied by torch" in report.explain()


def test_models_of_torch_and_transformers() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True).eval()
    x = torch.randn(2, 5, 32)
    with torch.no_grad():
        exact = layer(x)
        report = regard.quantize(layer)
        assert (layer(x) - exact).norm() / exact.norm() < 0.02
    assert report.kept == {
        "self_attn.out_proj": "NonDynamicallyQuantizableLinear is another class than nn.Linear",
    }
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=97, n_positions=64, n_embd=32, n_layer=2, n_head=4)
    model = transformers.GPT2LMHeadModel(config).eval()
    tokens = torch.randint(0, 97, (2, 9))
    with torch.no_grad():
        exact = model(tokens).logits
        report = regard.quantize(model)
        logits = model(tokens).logits
    assert (logits - exact).norm() / exact.norm() < 0.05
    assert "transformer.h.0.attn.c_attn" in report.layers
    assert model.transformer.wte.packed is model.lm_head.packed


def test_kept_layers_and_errors() -> None:
    model = translator(tied="target")
    hooked = model.encoder[0].feed.inner  # type: ignore[union-attr]
    hooked.register_forward_hook(lambda module, args, out: out)  # type: ignore[union-attr]
    report = regard.quantize(model, keep=["output", "decoder.0.feed.inner"])
    assert report.kept["target"] == report.kept["output"] == "it shares output"
    assert report.kept["decoder.0.feed.inner"] == "it was asked for"
    assert report.kept["encoder.0.feed.inner"] == "it has hooks, which another layer would not call"
    assert is_quantized(model)
    assert type(model.output) is nn.Linear
    source = torch.tensor(TEXTS[:1])
    with torch.no_grad():
        # a mixture of both kinds of weights runs natively, too
        state = model.init_state(source, torch.tensor([3]), 3)
        assert beam(model, state, bos=1, eos=2, limits=torch.tensor([5]), size=3)[0]


def quantized(*layers: nn.Module, **options: Any) -> Act:
    return lambda _: regard.quantize(nn.Sequential(*layers), **options)


REFUSED: dict[type[Exception], dict[str, Act]] = {
    ValueError: {
        "Sequential has no Linear layer or embedding of 1,024 numbers that could have": quantized(nn.Linear(3, 5)),
        "unknown activations 'int4'": quantized(nn.Linear(64, 64), activations="int4"),
        "a single layer cannot be replaced inside itself; wrap it: nn.Sequential": lambda _: regard.quantize(
            nn.Linear(64, 64)
        ),
        "keep has 'last', which is no layer of Sequential; take names of": quantized(nn.Linear(64, 64), keep=["last"]),
        "keep must be a collection of names of layers, got '1'; pass ['1']": quantized(nn.Linear(64, 64), keep="1"),
        "the weights of Sequential are bfloat16; call model.float() before quantize": quantized(
            nn.Linear(64, 64).bfloat16()
        ),
        "Sequential has 8-bit weights already; quantize a model once": lambda _: [
            regard.quantize(model) for model in [nn.Sequential(nn.Linear(64, 64))] * 2
        ],
    }
}


def test_refusals(tmp_path: Path) -> None:
    check_refusals(REFUSED, tmp_path)


def test_gradients_are_refused() -> None:
    layers = nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.Linear(32, 64))
    regard.quantize(layers)
    assert not any(parameter.requires_grad for parameter in layers.parameters())
    assert not layers(torch.randn(2, 64)).requires_grad
    with pytest.raises(ValueError, match="a layer with 8-bit weights has no gradient; wrap the call in torch.no_grad"):
        layers(torch.randn(2, 64, requires_grad=True))
    layers[1].requires_grad_(True)
    with pytest.raises(ValueError, match="has no gradient"):
        layers(torch.randn(2, 64))


def test_explain_states_why_torch_multiplies() -> None:
    layers = nn.Sequential(nn.Linear(64, 32))
    report = regard.quantize(layers)
    x = torch.randn(3, 64)
    assert "8-bit weights, with activations in int8" in report.explain()
    layers.to(torch.float64)
    from regard.interop.quantize import kernel_sentence

    assert "multiplied by torch, which is slow: 8-bit products are native for float32" in kernel_sentence(layers)
    out = layers(x.double())
    torch.testing.assert_close(out.float(), layers.float()(x), rtol=1e-4, atol=1e-5)
    layers.to("meta")
    assert "the native kernels run on the cpu, not on meta" in kernel_sentence(layers)


def test_a_bad_weight_changes_nothing() -> None:
    model = nn.Sequential(nn.Linear(40, 50), nn.Linear(50, 40))
    with torch.no_grad():
        model[1].weight[3] = torch.nan
    with pytest.raises(ValueError, match="1: weight has NaN or infinity"):
        regard.quantize(model)
    assert all(type(layer) is nn.Linear for layer in model)


@pytest.mark.parametrize("norm_first", [False, True])
def test_torch_encoders_multiply_by_8_bit_weights(norm_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their fast path would read the weights as floats, whatever the products."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 2, 40, dropout=0.0, batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first).eval()
    x, padding = torch.randn(3, 7, 32), torch.arange(7) >= torch.tensor([7, 5, 2])[:, None]
    # by the slow path, which a gradient takes
    expected = encoder(x, src_key_padding_mask=padding).detach()
    regard.quantize(encoder)
    calls, forward = [], QuantizedLinear.forward
    monkeypatch.setattr(QuantizedLinear, "forward", lambda self, x: calls.append(self) or forward(self, x))
    monkeypatch.setattr(QuantizedLinear, "weight", property(lambda self: pytest.fail("the weight was dequantised")))
    with torch.no_grad():
        masked, whole = encoder(x, src_key_padding_mask=padding), encoder(x)
    assert len(calls) == 2 * 2 * 2
    error = (masked - expected)[~padding].norm() / expected[~padding].norm()
    assert 0 < error < 0.02
    torch.testing.assert_close(masked[0], whole[0], rtol=0, atol=1e-5)


def test_a_quantized_model_of_transformers_is_not_saved_as_one(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**sizes, vocab_size=99))
    original = copy.deepcopy(model)
    regard.quantize(model)
    for quantized in (model, model.bert, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with pytest.raises(ValueError, match="save_pretrained would write 8-bit weights that from_pretrained does not"):
            quantized.save_pretrained(tmp_path)
    regard.quantize(original)
    original.load_state_dict(model.state_dict())
    ids = torch.arange(1, 8)[None]
    with torch.no_grad():
        assert torch.equal(original(ids).logits, model(ids).logits)


def test_the_report_names_parameters_that_trained_before() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 3)).requires_grad_(False)
    model[1].weight.requires_grad_()  # as of an adapter
    report = regard.quantize(model)
    assert report.frozen == ("1.weight",)
    assert "nothing trains any more: 1 parameters had gradients, 1.weight; train the model before" in report.explain()
