"""Other attention weights inside a model: laws, over torch's, transformers' and this library's attention."""

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers
from tests.refusals import Act, check_refusals
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

import regard
from regard.interop import Permutation, uniform

IDENTITY = lambda weights, allowed: weights  # noqa: E731


class Fused(nn.Module):
    """torch's fused attention with a causal mask and shared key heads."""

    def forward(self, x: Tensor) -> Tensor:  # "b 4 t d"
        k, v = x[:, :2] * 0.7, x[:, 2:] * 1.3
        return F.scaled_dot_product_attention(x, k, v, is_causal=True, enable_gqa=True)


def torch_encoder() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    layer = nn.TransformerEncoderLayer(12, 3, 7, dropout=0.0, batch_first=True)
    x, padding = torch.randn(2, 5, 12), torch.tensor([[False] * 5, [False, False, False, True, True]])
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), lambda m: m(x, src_key_padding_mask=padding)


def bert() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 7}
    config = transformers.BertConfig(**sizes, vocab_size=11, attn_implementation="sdpa", initializer_range=0.5)
    ids, mask = torch.randint(11, (2, 5)), torch.tensor([[1] * 5, [1, 1, 1, 0, 0]])
    return transformers.BertModel(config), lambda m: m(ids, attention_mask=mask).last_hidden_state


def fused() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    x = torch.randn(2, 4, 5, 6)
    return Fused(), lambda m: m(x)


def multihead() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    x = torch.randn(2, 5, 12)
    return regard.MultiHead(12, 3), lambda m: m(x, mask=regard.Causal())


def additive() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    q, k = torch.randn(2, 3, 5), torch.randn(2, 7, 4)
    return regard.Attention(regard.Additive(5, 4, 6)), lambda m: m(q, k, mask=regard.Lengths(torch.tensor([7, 2])))


def linear() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    return nn.Linear(3, 2), lambda m: m(torch.randn(2, 3))


MODELS = {"encoder": torch_encoder, "bert": bert, "fused": fused, "multihead": multihead, "additive": additive}


def made(name: str) -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    torch.manual_seed(0)
    model, call = linear() if name == "linear" else MODELS[name]()
    return model.eval(), call


@pytest.mark.parametrize("name", MODELS)
def test_weights_replaced_by_themselves_change_nothing(name: str) -> None:
    model, call = made(name)
    with torch.no_grad():
        want = call(model)
        with regard.intervene(model, IDENTITY) as intervention:
            out = call(model)
        assert sum(intervention.calls.values()) == (2 if name in ("encoder", "bert") else 1)
        torch.testing.assert_close(out, want, rtol=1e-5, atol=1e-5)
        assert torch.equal(call(model), want)  # after the block everything is as before


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("weights", [uniform, Permutation(1)], ids=["uniform", "permuted"])
def test_other_weights_are_distributions_over_the_same_keys(name: str, weights: Callable[..., Tensor]) -> None:
    model, call = made(name)
    seen: list[tuple[Tensor, Tensor]] = []

    def watched(own: Tensor, allowed: Tensor | None) -> Tensor:
        seen.append((own, weights(own, allowed)))
        return seen[-1][1]

    with torch.no_grad():
        want = call(model)
        with regard.intervene(model, watched):
            out = call(model)
    assert not torch.allclose(out, want, atol=1e-4)
    for own, other in seen:
        torch.testing.assert_close(other.sum(-1), own.sum(-1))
        assert torch.equal(other[own == 0], torch.zeros_like(other[own == 0]))
        if weights is not uniform:
            torch.testing.assert_close(other.sort(-1).values, own.sort(-1).values)


def test_uniform_weights_are_a_mean_of_values() -> None:
    q, k, v = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
    model = regard.Attention()
    with regard.intervene(model, uniform):
        out = model(q, k, v)
    torch.testing.assert_close(out, v.mean(1, keepdim=True).expand(2, 3, 6))


def test_a_given_map_and_its_gradient() -> None:
    model = nn.MultiheadAttention(12, 3, batch_first=True)
    x, given = torch.randn(2, 5, 12), torch.rand(5, 5).softmax(-1).requires_grad_()
    with regard.intervene(model, given):
        out, weights = model(x, x, x)
        _, per_head = model(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(weights, given.expand(2, 5, 5))
    assert per_head.shape == (2, 3, 5, 5)
    out.sum().backward()
    assert given.grad.abs().sum() > 0


def test_all_that_a_call_needs_is_of_the_other_weights() -> None:
    layer, q = regard.Attention(), torch.randn(2, 3, 5)
    own = layer.attend(q, q, need=regard.Need(lse=True))
    with regard.intervene(layer, uniform):
        got = layer.attend(q, q, need=regard.Need(weights=True, map=True, entropy=True, lse=True))
        assert layer.attend(q, q).weights is None
    torch.testing.assert_close(got.weights, torch.full((2, 3, 3), 1 / 3))
    torch.testing.assert_close(got.map.dense(), got.weights)
    torch.testing.assert_close(got.entropy, torch.full((2, 3), 3.0).log())
    torch.testing.assert_close(got.lse, own.lse)


@pytest.mark.parametrize("kind", ["torch", "regard"])
def test_nested_blocks_for_several_layers(kind: str) -> None:
    torch.manual_seed(0)
    x, first, second = torch.randn(2, 5, 12), *torch.rand(2, 5, 5).softmax(-1)
    layer = {"torch": lambda: nn.MultiheadAttention(12, 3, batch_first=True), "regard": lambda: regard.MultiHead(12, 3)}
    a, b = layer[kind](), layer[kind]()
    model = nn.ModuleDict({"a": a, "b": b})

    def call(part: nn.Module) -> Tensor:
        return part(x, x, x)[0] if kind == "torch" else part(x)

    with torch.no_grad():
        with regard.intervene(a, first), regard.intervene(model, second, layers="b*") as inner:
            got = [call(part) for part in (a, b)]
        for part, given, out in zip((a, b), (first, second), got, strict=True):
            with regard.intervene(part, given):
                torch.testing.assert_close(out, call(part))
    assert sum(inner.calls.values()) == 1


def test_a_block_inside_of_a_record_is_refused() -> None:
    model, _ = made("multihead")
    said = "a record is running in this thread, which would miss replaced weights; end that block first"
    with pytest.raises(RuntimeError) as caught, regard.record(model), regard.intervene(model, uniform):
        pass
    assert str(caught.value) == said


def test_only_the_selected_layers() -> None:
    model, call = made("encoder")
    with torch.no_grad(), regard.intervene(model, uniform, layers="layers.1.*") as intervention:
        call(model)
    assert intervention.calls == {"layers.1.self_attn": 1}


def intervening(weights: object, name: str = "fused", **options: str) -> Act:
    def act(_: Path) -> None:
        model, call = made(name)
        with regard.intervene(model, weights, **options):  # type: ignore[arg-type]
            call(model)

    return act


REFUSED: dict[type[Exception], dict[str, Act]] = {
    ValueError: {
        "weights must broadcast to those of the model, (2, 4, 5, 5), got (7, 7); give one map per layer with "
        "layers=": intervening(torch.ones(7, 7)),
        "weights must return a tensor of the shape of its argument, (2, 4, 5, 5), got (2, 4, 5, 1); return one "
        "weight per query and key": intervening(lambda own, allowed: own[..., :1]),
        "unknown layers 'encoder.*'; known are: ": intervening(uniform, layers="encoder.*"),
        "intervene replaced no weights: no selected module attended by scaled_dot_product_attention or by a layer of "
        "regard; widen layers=, or load a model of transformers with attn_implementation='sdpa'": intervening(
            uniform, "linear"
        ),
    },
    TypeError: {
        "weights must be a function of weights, or a tensor, got str; try weights=regard.interop.uniform": intervening(
            "uniform"
        ),
    },
}


def test_refusals(tmp_path: Path) -> None:
    check_refusals(REFUSED, tmp_path)


# one attention each, "b t d" -> "b t d", that intervene does not replace
WRITTEN_OUT: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: F.dropout((x @ x.mT).softmax(-1), 0.0) @ x,
    "einsum": lambda x: torch.einsum("bij,bjd->bid", (x @ x.mT).softmax(-1), x),
    "named": lambda x: torch.matmul(input=(x @ x.mT).softmax(-1), other=x),
    "one query": lambda x: torch.bmm((x @ x[:, -1, :, None])[..., 0].softmax(-1)[:, None], x).expand_as(x),
    "transposed": lambda x: (x.mT @ (x @ x.mT).softmax(-2)).mT,
    "logarithms": lambda x: (x @ x.mT).log_softmax(-1).exp() @ x,
    "exponentials": lambda x: ((e := (x @ x.mT).exp()) / e.sum(-1, keepdim=True)) @ x,
    "sums": lambda x: ((x @ x.mT).softmax(-1)[..., None] * x[:, None]).sum(2),
    "flex": lambda x: flex_attention(x[:, None], x[:, None], x[:, None])[:, 0],
}


class WrittenOut(nn.Module):
    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        return WRITTEN_OUT[self.form](x)


def test_attention_that_keeps_its_weights_is_named() -> None:
    x, silent = torch.randn(2, 5, 8), []
    for form in WRITTEN_OUT:
        model = nn.Sequential(regard.MultiHead(8, 2), WrittenOut(form)).eval()
        with warnings.catch_warnings(record=True) as caught, torch.no_grad():
            warnings.simplefilter("always")
            warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
            with regard.intervene(model, uniform) as intervention:
                model(x)
            warned = [str(warning.message) for warning in caught]
            with regard.intervene(model, uniform, layers="0"):
                model(x)
            assert len(caught) == len(warned)
        if not any("intervene kept the weights of '1', which attends by a written-out softmax" in w for w in warned):
            silent.append(form)
        assert list(intervention.calls) == ["0"]
    assert not silent
