"""swap: other terms in models of transformers, of torch and of this library; restore gives the same bits."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.for_each import for_each
from tests.interop.test_transformers_attention import IDS, SIZES, T, build, padded
from tests.refusals import Act, check_refusals
from torch import Tensor, nn

import regard

entmax = pytest.importorskip("entmax")

X = torch.randn(3, T, 16, generator=torch.Generator().manual_seed(5))
HIDDEN = torch.zeros(3, T, dtype=torch.bool)
HIDDEN[1, 7:] = True


def encoder(**options: Any) -> nn.TransformerEncoder:
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2).eval()


def gpt() -> regard.models.GPT2:
    torch.manual_seed(2)
    return regard.models.GPT2(99, width=16, layers=2, heads=4, longest=32).eval()


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], Tensor]]] = {
    "transformers": (lambda: build("window"), lambda m: m(IDS, attention_mask=padded(0, 4))[0]),
    "transformers with sinks": (lambda: build("sinks"), lambda m: m(IDS)[0]),
    "torch": (encoder, lambda m: m(X, src_key_padding_mask=HIDDEN)[~HIDDEN]),
    "torch causal": (encoder, lambda m: m(X, mask=nn.Transformer.generate_square_subsequent_mask(T), is_causal=True)),
    "torch heads": (
        lambda: nn.MultiheadAttention(16, 4, add_zero_attn=True).eval(),
        lambda m: m(X, X, X, average_attn_weights=False)[0],
    ),
    "regard": (gpt, lambda m: m(IDS)),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@for_each("name", MODELS)
@torch.no_grad()
def test_own_terms_change_nothing_and_restore_is_exact(name: str) -> None:
    make, call = MODELS[name]
    model = make()
    keys, before = list(model.state_dict()), call(model)
    normalize = None if "sinks" in name or "heads" in name else regard.Softmax()
    swapped = regard.swap(model, normalize=normalize, mask=regard.Window(None, None))
    assert swapped.layers
    assert (call(model) - before).abs().max() <= 1e-5 * before.abs().max()
    regard.swap(model, normalize=regard.Sparsemax())
    assert (call(model) - before).abs().max() > 1e-3 * before.abs().max()
    assert list(model.state_dict()) == keys
    regard.restore(model)
    assert torch.equal(call(model), before)
    regard.restore(model)  # nothing is left to restore
    assert torch.equal(call(model), before)


@torch.no_grad()
def test_entmax_in_one_layer_of_bert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the eager model with the softmax of its second layer replaced by that of another library."""
    model = build("Bert", "Model", SIZES)
    model.set_attn_implementation("eager")
    softmax, calls = F.softmax, []

    def second_by_entmax(scores: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        calls.append(scores.shape)
        return entmax.entmax15(scores, dim=-1) if len(calls) == 2 else softmax(scores, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(F, "softmax", second_by_entmax)
        expected = model(IDS)[0]
    assert len(calls) == 2
    with regard.swap(model, normalize=regard.Entmax(1.5), layers="encoder.layer.1.*"):
        assert model.config._attn_implementation == "regard"
        assert (model(IDS)[0] - expected).abs().max() < 1e-5 * expected.abs().max()
    assert model.config._attn_implementation == "eager"


@torch.no_grad()
def test_a_window_under_a_causal_model() -> None:
    """Against the eager model with the whole mask given."""
    model = build("causal")
    i = torch.arange(T)
    allowed = (i[:, None] >= i) & (i[:, None] - i <= 3)
    model.set_attn_implementation("eager")
    expected = model(IDS, attention_mask=torch.where(allowed, 0.0, torch.finfo().min).expand(3, 1, T, T))[0]
    with regard.swap(model, mask=regard.Window(3)):
        assert (model(IDS)[0] - expected).abs().max() < 1e-5 * expected.abs().max()


@torch.no_grad()
def test_bias_is_added_and_score_replaced() -> None:
    heads = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    alibi = regard.ALiBi(4)
    own = torch.randn(T, T)
    added = alibi(torch.empty(1, 4, T, 4), torch.arange(T), torch.arange(T), T)
    expected = heads(X, X, X, attn_mask=(added + own).expand(3, 4, T, T).flatten(0, 1))[0]
    with regard.swap(heads, bias=alibi):
        assert torch.allclose(heads(X, X, X, attn_mask=own)[0], expected, atol=1e-6)
    q, k, v = (t.unflatten(-1, (4, 4)).transpose(1, 2) for t in F.linear(X, heads.in_proj_weight).chunk(3, -1))
    weights = (3.0 * F.cosine_similarity(q.unsqueeze(-2), k.unsqueeze(-3), -1)).softmax(-1)
    expected = heads.out_proj((weights @ v).transpose(1, 2).flatten(-2))
    with regard.swap(heads, score=regard.Cosine(3.0)):
        out, returned = heads(X, X, X, average_attn_weights=False)
        assert torch.allclose(out, expected, atol=1e-6)
        assert torch.allclose(returned, weights, atol=1e-6)
        assert torch.allclose(heads(X[0], X[0], X[0])[0], expected[0], atol=1e-6)


def test_training_with_swapped_terms() -> None:
    """Gradients reach the weights of the model and the parameters of the term, which the state does not hold."""
    model, term = encoder().train(), regard.Entmax(regard.Learnable(1.5))
    regard.swap(model, normalize=term)
    model(X).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in term.parameters())
    assert all(p.grad is not None for p in model.parameters())
    assert not {id(p) for p in term.parameters()} & {id(p) for p in model.parameters()}


@torch.no_grad()
def test_copies_keep_their_terms() -> None:
    model = encoder()
    before = model(X)
    regard.swap(model, normalize=regard.Sparsemax())
    other = copy.deepcopy(model)
    swapped = model(X)
    regard.restore(model)
    assert torch.equal(model(X), before)
    assert torch.equal(other(X), swapped)


@torch.no_grad()
def test_recordings_see_the_swapped_weights() -> None:
    for name, first in (("torch", "layers.0.self_attn"), ("transformers", "model.layers.0.self_attn")):
        make, call = MODELS[name]
        model = make()
        with regard.swap(model, normalize=regard.Sparsemax()), regard.record(model) as recording:
            call(model)
        assert recording.names[0] == first
        assert (recording[0].weights.dense() == 0).float().mean() > 0.3


def test_nested_blocks_end_in_their_order() -> None:
    model = encoder()
    with pytest.raises(RuntimeError) as caught, regard.swap(model, normalize=regard.Sparsemax()):
        regard.swap(model, mask=regard.Causal())
    assert str(caught.value) == ("terms were swapped again inside this block; restore those first, or all by restore()")
    regard.restore(model)


def is_causal_without_mask(_: Path) -> None:
    heads = nn.MultiheadAttention(16, 4)
    with regard.swap(heads, normalize=regard.Sparsemax()):
        heads(X, X, X, is_causal=True)


def swapped(model: nn.Module, layers: str | None = None, **terms: Any) -> Act:
    return lambda _: regard.swap(model, layers=layers, **(terms or {"normalize": regard.Sparsemax()}))


NOTHING = (
    "swap found no attention to change: no selected module is a layer of regard or nn.MultiheadAttention, or calls the "
    "attention interface of transformers; "
)
REFUSED: dict[type[Exception], dict[str, Act]] = {
    ValueError: {
        "swap needs a term to exchange; try normalize=regard.Entmax(1.5) or mask=regard.Window(256)": lambda _: (
            regard.swap(encoder())
        ),
        f"{NOTHING}record the model to see its attention": swapped(nn.Linear(3, 3)),
        f"{NOTHING}try layers='layers.0.self_attn'": swapped(encoder(), "layers.1.linear*"),
        "bias cannot be added: an earlier swap added ALiBi(heads=4); restore that one first, or leave its modules out "
        "of layers=": lambda _: [
            regard.swap(heads, bias=regard.ALiBi(4)) for heads in [nn.MultiheadAttention(16, 4)] * 2
        ],
        "is_causal=True says that attn_mask is causal, and there is none; give attn_mask, or swap in "
        "mask=regard.Causal()": is_causal_without_mask,
        "bias cannot be added to '0', which has ALiBi(heads=4) already; leave it out of layers=": swapped(
            nn.Sequential(regard.Attention(bias=regard.ALiBi(4))), bias=regard.ALiBi(4)
        ),
        "swap has no term for the key and value that nn.MultiheadAttention(add_bias_kv=True) appends; leave this "
        "module out of layers=": swapped(nn.MultiheadAttention(8, 2, add_bias_kv=True), mask=regard.Causal()),
        "unknown layers 'decoder": swapped(encoder(), "decoder.*"),
    },
    TypeError: {
        "model must be a Module, got 3": lambda _: regard.swap(3, mask=regard.Causal()),  # type: ignore[arg-type]
        "model must be a Module, got 4": lambda _: regard.restore(4),  # type: ignore[arg-type]
        "heads must be a MultiheadAttention, got": lambda _: regard.MultiHead.from_torch(nn.Linear(2, 2)),  # type: ignore[arg-type]
        "normalize must be a Normalizer": swapped(encoder(), normalize=regard.Dot()),
    },
}


def test_refusals(tmp_path: Path) -> None:
    check_refusals(REFUSED, tmp_path)
    model = build("Bert", "Model", SIZES)
    with pytest.raises(ValueError, match=f"{NOTHING}try layers='encoder.layer.1.attention.self'"):
        regard.swap(model, normalize=regard.Sparsemax(), layers="encoder.layer.1")


@torch.no_grad()
def test_a_swap_that_fails_changes_nothing() -> None:
    both = nn.ModuleList([nn.MultiheadAttention(16, 4), nn.MultiheadAttention(16, 4, add_bias_kv=True)]).eval()
    before = both[0](X, X, X)[0]
    with pytest.raises(ValueError, match="swap has no term for the key and value"):
        regard.swap(both, normalize=regard.Sparsemax())
    assert torch.equal(both[0](X, X, X)[0], before)


@torch.no_grad()
def test_layers_of_a_swap_are_those_that_attend() -> None:
    model = build("Bert", "Model", SIZES)
    with regard.swap(model, normalize=regard.Sparsemax(), layers="encoder.layer.1.*") as swapped:
        assert swapped.layers == ["encoder.layer.1.attention.self"]
        assert repr(swapped) == "Swap(1 layers of BertModel)"
