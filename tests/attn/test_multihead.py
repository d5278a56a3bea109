"""MultiHead: its formula, its steps, its heads."""

import copy

import pytest
import torch

import regard
from regard import Attention, MultiHead, Need

DIM, HEADS, T = 12, 6, 7
BIASES = {
    "none": lambda: None,
    "alibi": lambda: regard.ALiBi(HEADS),
    "t5": lambda: regard.T5Buckets(HEADS, buckets=4, max_distance=6),
    "shaw": lambda: regard.Shaw(2, clip=2),
    "xl": lambda: regard.RelativeXL(8, HEADS, 2),
}


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("kv_heads", [2, 6])
def test_values_of_another_width(kv_heads: int, rotate: bool) -> None:
    """d_v unlike d_k: the formula, steps against the whole, the gradient, and no module of torch."""
    turn = regard.Rotary(4) if rotate else None
    layer = MultiHead(DIM, HEADS, kv_heads=kv_heads, head_dim=4, head_value_dim=3, rotate=turn).double()
    assert (layer.value.out_features, layer.out.in_features) == (kv_heads * 3, HEADS * 3)
    x = torch.randn(2, T, DIM, dtype=torch.float64, requires_grad=True)
    got = layer.attend(x, mask=regard.Causal(), need=Need(weights=True))
    heads = []
    for h in range(HEADS):
        g = h // (HEADS // kv_heads)
        q_h, k_h = layer.query(x)[..., 4 * h : 4 * h + 4], layer.key(x)[..., 4 * g : 4 * g + 4]
        if turn is not None:
            q_h, k_h = turn(q_h), turn(k_h)
        scores = (q_h @ k_h.mT / 2).masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)
        weights = torch.softmax(scores, -1)
        torch.testing.assert_close(got.weights[:, h], weights, rtol=0, atol=1e-10)
        heads.append(weights @ layer.value(x)[..., 3 * g : 3 * g + 3])
    want = layer.out(torch.cat(heads, -1))
    torch.testing.assert_close(got.out, want, rtol=0, atol=1e-10)
    torch.testing.assert_close(layer(x, mask=regard.Causal()), want, rtol=0, atol=1e-10)
    with torch.no_grad():
        past = None
        for t in range(T):
            step, past = layer.step(x[:, t : t + 1], past, mask=regard.Causal())
            torch.testing.assert_close(step[:, 0], want[:, t], rtol=0, atol=1e-10)
    assert torch.autograd.gradcheck(lambda x: layer(x, mask=regard.Causal()), x[:1, :3].detach().requires_grad_())
    if kv_heads == HEADS:
        with pytest.raises(ValueError, match="heads of width 4|values of width 3 per head beside keys of 4"):
            layer.to_torch()


def test_values_of_another_width_beside_the_usual_keys() -> None:
    """Where the keys are as torch has them, the refusal names the values."""
    with pytest.raises(ValueError, match="values of width 3 per head beside keys of 2"):
        MultiHead(DIM, HEADS, head_value_dim=3).to_torch()
    with pytest.raises(ValueError, match="head_value_dim must be a whole number"):
        MultiHead(DIM, HEADS, head_value_dim=0)


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_it_is_the_formula(kv_heads: int) -> None:
    layer = MultiHead(DIM, HEADS, kv_heads=kv_heads, key_dim=5, value_dim=7).double()
    q, k, v = (torch.randn(2, n, w, dtype=torch.float64) for n, w in ((3, DIM), (4, 5), (4, 7)))
    got = layer.attend(q, k, v, need=Need(weights=True))
    heads = []
    for h in range(HEADS):
        g = h // (HEADS // kv_heads)
        q_h = layer.query(q)[..., 2 * h : 2 * h + 2]
        k_h, v_h = layer.key(k)[..., 2 * g : 2 * g + 2], layer.value(v)[..., 2 * g : 2 * g + 2]
        weights = torch.softmax(q_h @ k_h.mT / 2**0.5, -1)
        close(got.weights[:, h], weights)
        heads.append(weights @ v_h)
    close(got.out, layer.out(torch.cat(heads, -1)))
    close(layer(q, k, v), got.out)


@pytest.mark.parametrize("rotate", [None, "halves", "neighbours"])
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("kv_heads", [2, 6])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
def test_one_step_at_a_time_equals_all_at_once(kv_heads: int, bias: str, rotate: str | None, grad: bool) -> None:
    turn = None if rotate is None else regard.Rotary(2, pairs=rotate)
    layer = MultiHead(DIM, HEADS, kv_heads=kv_heads, rotate=turn, attention=Attention(bias=BIASES[bias]())).double()
    x = torch.randn(2, T, DIM, dtype=torch.float64)
    with torch.set_grad_enabled(grad):
        for mask in (regard.Causal(), regard.Window(2, 0), regard.Prefix(3)):
            whole = layer(x, mask=mask)
            past, outs, start = None, [], 0
            for n in (3, 1, 1, 2):
                here = x[:, start : start + n]
                past = layer.project_kv(here, past=past)
                outs.append(layer(here, past, mask=mask))
                start += n
            close(torch.cat(outs, 1), whole)
    if grad:
        torch.cat(outs, 1).sum().backward()
        assert all(p.grad is not None for p in layer.parameters())


def test_positions_turn_and_mask() -> None:
    layer = MultiHead(DIM, HEADS, rotate=regard.Rotary(2), attention=Attention(mask=regard.Causal())).double()
    x = torch.randn(2, T, DIM, dtype=torch.float64)
    places = torch.arange(T)
    whole = layer(x)
    close(layer(x, positions=(places, places)), whole)
    torch.testing.assert_close(layer(x, positions=(places + 50, places + 50)), whole, atol=1e-4, rtol=0)
    rows = torch.stack([places, places + 50])
    torch.testing.assert_close(layer(x, positions=(rows, rows)), whole, atol=1e-4, rtol=0)
    past = layer.project_kv(x[:, :4], positions=places[:4])
    past = layer.project_kv(x[:, 4:], past=past, positions=places[4:])
    close(layer(x[:, 4:], past), whole[:, 4:])


def test_a_packed_row_equals_its_documents() -> None:
    layer = MultiHead(DIM, HEADS, rotate=regard.Rotary(2)).double()
    x = torch.randn(1, T, DIM, dtype=torch.float64)
    mask = regard.Causal() & regard.Documents(torch.tensor([[0, 0, 0, 1, 1, 1, 1]]))
    got = layer(x, mask=mask)
    apart = torch.cat([layer(x[:, :3], mask=regard.Causal()), layer(x[:, 3:], mask=regard.Causal())], 1)
    torch.testing.assert_close(got, apart, atol=1e-6, rtol=1e-5)


def test_padding_of_the_source_reaches_nothing() -> None:
    layer = MultiHead(DIM, HEADS, kv_heads=2)
    x, source = torch.randn(2, 3, DIM), torch.randn(2, 5, DIM)
    lengths = regard.Lengths(torch.tensor([2, 5]))
    layer(x, source, mask=lengths).sum().backward()
    want = {name: p.grad.clone() for name, p in layer.named_parameters()}
    clean = layer(x, source, mask=lengths)
    for number in (torch.nan, torch.inf, 1e4):
        layer.zero_grad()
        source[0, 2:] = number
        got = layer(x, source, mask=lengths)
        close(got, clean)
        got.sum().backward()
        for name, p in layer.named_parameters():
            torch.testing.assert_close(p.grad, want[name], msg=lambda s, name=name: f"{name}: {s}")


def test_each_head_its_own_attention() -> None:
    several = [
        Attention(regard.Dot()),
        Attention(regard.Additive(2, 2, 4), normalize=regard.Sparsemax()),
        Attention(regard.Distance(), mask=regard.Causal()),
        Attention(regard.Bilinear(2, 2), normalize=regard.Entmax(1.5)),
        Attention(regard.Cosine()),
        Attention(regard.scores.Trilinear(2)),
    ]
    layer = MultiHead(DIM, HEADS, kv_heads=3, attention=several)
    x = torch.randn(2, 5, DIM)
    lengths = regard.Lengths(torch.tensor([2, 5]))
    got = layer.attend(x, mask=lengths, need=Need(weights=True, entropy=True, map=True))
    assert got.weights.shape == (2, HEADS, 5, 5)
    assert got.entropy.shape == (2, HEADS, 5)
    for h, one in enumerate(several):
        g = h // 2
        parts = [
            layer.query(x)[..., 2 * h : 2 * h + 2],
            layer.key(x)[..., 2 * g : 2 * g + 2],
            layer.value(x)[..., 2 * g : 2 * g + 2],
        ]
        want = one.attend(*parts, mask=lengths, need=Need(weights=True))
        close(got.weights[:, h], want.weights)
        close(got.map[h].dense(), want.weights)
    assert layer.explain(x).count(" runs: ") == HEADS
    past = layer.project_kv(x[:, :3])
    past = layer.project_kv(x[:, 3:], past=past)
    close(layer(x[:, 3:], past, mask=lengths), got.out[:, 3:])


def test_leading_axes() -> None:
    layer = MultiHead(DIM, HEADS, kv_heads=2, rotate=regard.Rotary(2))
    x = torch.randn(2, 3, 5, DIM)
    whole = layer(x, mask=regard.Causal())
    assert whole.shape == x.shape
    close(layer(x[1], mask=regard.Causal()), whole[1])
    close(layer(x[1, 2], mask=regard.Causal()), whole[1, 2])
    assert layer(x[:0]).shape == (0, 3, 5, DIM)
    assert layer(x[..., :0, :]).shape == (2, 3, 0, DIM)
    assert layer(x, x[..., :0, :]).shape == x.shape


@pytest.mark.parametrize(
    "attention",
    [
        None,
        lambda: Attention(regard.Additive(2, 2, 3)),
        lambda: Attention(normalize=regard.Sparsemax()),
        lambda: Attention(regard.Cosine(regard.Learnable(4.0, heads=HEADS)), bias=regard.RelativeXL(6, HEADS, 2)),
    ],
    ids=["plain", "additive", "sparsemax", "cosine-xl"],
)
def test_every_parameter_receives_a_gradient_and_survives_copies(attention) -> None:
    layer = MultiHead(DIM, HEADS, kv_heads=3, attention=attention and attention())
    x = torch.randn(2, 5, DIM)
    out = layer(x, mask=regard.Causal())
    (out * torch.randn_like(out)).sum().backward()
    assert all((p.grad != 0).any() for name, p in layer.named_parameters() if name != "key.bias"), [
        name for name, p in layer.named_parameters() if not (p.grad != 0).any()
    ]
    twin = copy.deepcopy(layer)
    assert torch.equal(twin(x, mask=regard.Causal()), out)
    with torch.no_grad():
        for p in twin.parameters():
            p.zero_()
    twin.load_state_dict(layer.state_dict())
    assert torch.equal(twin(x, mask=regard.Causal()), out)
    double = layer.double()(x.double(), mask=regard.Causal())
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), out, rtol=1e-3, atol=1e-4)
    assert repr(layer)


def test_a_beam_is_reordered() -> None:
    layer = MultiHead(DIM, HEADS)
    x = torch.randn(2, 4, DIM)
    past = layer.project_kv(x[:, :3])
    index = torch.tensor([1, 0, 1])
    past = layer.project_kv(x[index, 3:], past=past.reorder(index))
    close(layer(x[index, 3:], past), layer(x, mask=regard.Causal())[index, 3:])


GARBAGE = {"nan": torch.nan, "inf": torch.inf, "minus inf": -torch.inf}
LAYERS = {
    "plain": lambda: MultiHead(DIM, HEADS),
    "grouped": lambda: MultiHead(DIM, HEADS, kv_heads=2, rotate=regard.Rotary(2)),
    "additive": lambda: MultiHead(DIM, HEADS, attention=Attention(regard.Additive(2, 2, 3))),
    "sparsemax": lambda: MultiHead(DIM, HEADS, attention=Attention(normalize=regard.Sparsemax())),
    "xl": lambda: MultiHead(DIM, HEADS, attention=Attention(bias=regard.RelativeXL(6, HEADS, 2))),
    "gaussian": lambda: MultiHead(DIM, HEADS, attention=Attention(bias=regard.biases.LocalGaussian(2, 3))),
    "blocked": lambda: MultiHead(DIM, HEADS, attention=Attention(regard.Distance(1), backend="blocked")),
    "apart": lambda: MultiHead(2, 2, head_dim=3, attention=[Attention(), Attention(regard.Cosine())]),
}


def nonfinite_rows(
    layer: MultiHead, x: torch.Tensor, seen: torch.Tensor, mask: regard.Mask | None
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The output, and the gradients of what `seen` rows give with regard to x and every parameter."""
    x = x.clone().requires_grad_()
    out = layer(x, mask=mask)
    g = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(5))
    grads = torch.autograd.grad((out * g)[seen].sum(), [x, *layer.parameters()], allow_unused=True)
    named = zip(grads, [x, *layer.parameters()], strict=True)
    return out, [torch.zeros_like(t) if grad is None else grad for grad, t in named]


@pytest.mark.parametrize("number", GARBAGE)
@pytest.mark.parametrize("kind", LAYERS)
def test_padding_of_self_attention_reaches_nothing(kind: str, number: str) -> None:
    layer = LAYERS[kind]().double()
    lengths = torch.tensor([3, T, 1])
    x = torch.randn(3, T, layer.query.in_features, dtype=torch.float64)
    seen = torch.arange(T) < lengths[:, None]
    for mask in (
        regard.Lengths(lengths),
        regard.Causal() & regard.Lengths(lengths),
        regard.BooleanMask(seen[:, None, :]),
    ):
        clean, wanted = nonfinite_rows(layer, x.masked_fill(~seen[..., None], 0.0), seen, mask)
        dirty, slopes = nonfinite_rows(layer, x.masked_fill(~seen[..., None], GARBAGE[number]), seen, mask)
        close(dirty[seen], clean[seen])
        assert torch.isnan(dirty[~seen]).all()
        for slope, want in zip(slopes, wanted, strict=True):
            assert torch.isfinite(slope).all()
            close(slope, want)


@pytest.mark.parametrize("number", GARBAGE)
@pytest.mark.parametrize("where", ["call", "layer"])
def test_what_comes_last_does_not_reach_those_before(where: str, number: str) -> None:
    own = regard.Causal() if where == "layer" else None
    layer = MultiHead(DIM, HEADS, attention=Attention(mask=own)).double()
    x = torch.randn(2, T, DIM, dtype=torch.float64)
    seen = (torch.arange(T) < T - 1).expand(2, T)
    mask = regard.Causal() if where == "call" else None
    clean, wanted = nonfinite_rows(layer, x.masked_fill(~seen[..., None], 0.0), seen, mask)
    dirty, slopes = nonfinite_rows(layer, x.masked_fill(~seen[..., None], GARBAGE[number]), seen, mask)
    close(dirty[seen], clean[seen])
    assert torch.isnan(dirty[~seen]).all()
    for slope, want in zip(slopes, wanted, strict=True):
        close(slope, want)


def test_a_row_that_looks_at_garbage_says_so() -> None:
    layer = MultiHead(DIM, HEADS)
    x = torch.randn(2, T, DIM)
    x[0, 2, 5] = torch.nan
    out = layer(x, mask=regard.Window(1, 0))
    lost = torch.isnan(out).all(-1)
    assert lost.nonzero().tolist() == [[0, 2], [0, 3]]
    assert torch.isfinite(out[~lost]).all()
    assert torch.isnan(layer(x)[0]).all()  # without a mask everybody looks
    assert torch.isfinite(layer(x)[1]).all()


def test_terms_with_heads_in_a_list_of_attentions() -> None:
    """Each head has its own axis of one: samples are not taken for heads."""
    layer = MultiHead(DIM, HEADS, attention=[Attention(bias=regard.ALiBi(1)) for _ in range(HEADS)]).double()
    x = torch.randn(1, T, DIM, dtype=torch.float64).expand(3, -1, -1)
    out = layer(x)
    close(out[0], out[1])
    close(out[0], out[2])


def test_a_mask_for_each_head_in_a_list_of_attentions() -> None:
    layer = MultiHead(DIM, HEADS, attention=[Attention() for _ in range(HEADS)]).double()
    same = MultiHead(DIM, HEADS).double()
    same.load_state_dict(layer.state_dict(), strict=False)
    x = torch.randn(2, T, DIM, dtype=torch.float64)
    allowed = torch.rand(2, HEADS, T, T) < 0.7
    close(layer(x, mask=allowed), same(x, mask=allowed))


@pytest.mark.parametrize("axes", [(), (2,), (2, HEADS)], ids=["pairs", "samples", "heads"])
@pytest.mark.parametrize("attention", [None, [Attention() for _ in range(HEADS)]], ids=["one", "one per head"])
def test_a_mask_of_numbers_is_added_to_the_scores(attention, axes: tuple[int, ...]) -> None:
    layer = MultiHead(DIM, HEADS, attention=attention).double()
    x = torch.randn(2, T, DIM, dtype=torch.float64)
    allowed = torch.rand(*axes, T, T) < 0.7
    hiding = torch.zeros(allowed.shape, dtype=torch.float64).masked_fill(~allowed, -torch.inf)
    close(layer(x, mask=hiding), layer(x, mask=allowed))
    numbers = torch.randn(*axes, T, T, dtype=torch.float64)
    weights = layer.attend(x, mask=numbers, need=Need(weights=True)).weights
    scores = layer.attend(x, need=Need(weights=True)).weights.log()
    added = numbers[:, None] if axes == (2,) else numbers
    close(weights, torch.softmax(scores + added, -1))
    assert "runs: " in layer.explain(x, mask=numbers)
    with torch.no_grad():
        out, _ = layer.step(x[:, :1], mask=hiding[..., :1, :1])
        close(out, layer(x[:, :1], mask=allowed[..., :1, :1]))


def test_remembered_places_go_on_where_they_ended() -> None:
    layer = MultiHead(DIM, HEADS, attention=Attention(regard.scores.Location(DIM // HEADS, 2 * T))).double()
    x = torch.randn(2, T, DIM, dtype=torch.float64)
    past = layer.project_kv(x[:, 3:], past=layer.project_kv(x[:, :3]))
    close(layer(x, past), layer(x))


def test_dropout_of_one_drops_everything() -> None:
    x = torch.randn(2, 5, DIM)
    for heads in (
        MultiHead(DIM, HEADS, dropout=1.0),
        MultiHead(DIM, HEADS, attention=Attention(dropout=1.0, backend="blocked")),
    ):
        torch.testing.assert_close(heads(x), heads.out.bias.expand(2, 5, -1))
        assert heads.eval()(x).std() > 0


@pytest.mark.parametrize("kind", ["rotary", "xl", "causal", "window"])
def test_an_exported_layer_takes_any_length(kind: str) -> None:
    rotate = regard.Rotary(DIM // HEADS) if kind == "rotary" else None
    bias = regard.RelativeXL(6, HEADS, DIM // HEADS) if kind == "xl" else None
    mask = None if kind == "rotary" else regard.Window(5, 0) if kind == "window" else regard.Causal()
    heads = MultiHead(DIM, HEADS, rotate=rotate, attention=Attention(bias=bias, mask=mask)).eval()
    shapes = {"q": {1: torch.export.Dim("n", min=2, max=64)}}
    exported = torch.export.export(heads, (torch.randn(2, 6, DIM),), dynamic_shapes=shapes, strict=False).module()
    for n in (2, 9, 33):
        x = torch.randn(2, n, DIM)
        torch.testing.assert_close(exported(x), heads(x), rtol=1e-4, atol=1e-5)
