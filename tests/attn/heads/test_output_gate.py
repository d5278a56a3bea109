"""The gate of the output of MultiHead: the formula, steps, and every path that does not have it."""

from collections.abc import Callable

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard import MultiHead, Need
from regard.export.plain_attention import attention_reason
from regard.layers import OutputGate, RMSQKNorm

DIM, HEADS, KV_HEADS, D, V, T = 14, 6, 2, 4, 3, 7
GATES: dict[str, Callable[[], OutputGate]] = {
    "head": lambda: OutputGate(DIM, HEADS),
    "head, bias": lambda: OutputGate(DIM, HEADS, bias=True),
    "channel": lambda: OutputGate(DIM, HEADS, V),
    "channel, bias": lambda: OutputGate(DIM, HEADS, V, bias=True),
}


def layer(gate: OutputGate | None, **options: object) -> MultiHead:
    torch.manual_seed(0)
    options = {"kv_heads": KV_HEADS, "head_dim": D, "head_value_dim": V, **options}
    return MultiHead(DIM, HEADS, gate=gate, **options).double().eval()  # type: ignore[arg-type]


def loop(heads: MultiHead, x: Tensor) -> Tensor:  # "t d"
    """One head and one query at a time."""
    q, k, v = (linear(x) for linear in (heads.query, heads.key, heads.value))
    opening, outs = torch.sigmoid(heads.gate.map(x)), []
    for t in range(len(x)):
        parts = []
        for h in range(HEADS):
            n = h // (HEADS // KV_HEADS)
            s = k[: t + 1, n * D : (n + 1) * D] @ q[t, h * D : (h + 1) * D] / D**0.5
            out = torch.softmax(s, 0) @ v[: t + 1, n * V : (n + 1) * V]
            channels = heads.gate.channels
            parts.append(out * opening[t, h * channels : (h + 1) * channels])
        outs.append(torch.cat(parts))
    return heads.out(torch.stack(outs))


@for_each("name", GATES)
def test_it_is_the_formula_and_its_steps_are_the_whole(name: str) -> None:
    heads = layer(GATES[name]())
    x = torch.randn(2, T, DIM, dtype=torch.float64)
    want = heads(x, mask=regard.Causal())
    for row, expected in zip(x, want, strict=True):
        torch.testing.assert_close(loop(heads, row), expected)
    torch.testing.assert_close(heads.attend(x, mask=regard.Causal(), need=Need(weights=True)).out, want)
    with torch.no_grad():
        past = None
        for t in range(T):
            step, past = heads.step(x[:, t : t + 1], past, mask=regard.Causal())
            torch.testing.assert_close(step[:, 0], want[:, t])


@for_each("name", GATES)
def test_an_open_gate_is_no_gate(name: str) -> None:
    gate, plain = GATES[name](), layer(None)
    nn.init.zeros_(gate.map.weight)
    if gate.map.bias is None:
        gate.map.bias = nn.Parameter(torch.empty(gate.map.out_features))
    nn.init.constant_(gate.map.bias, 60.0)
    x = torch.randn(2, T, DIM, dtype=torch.float64)
    torch.testing.assert_close(layer(gate)(x), plain(x))


@for_each("name", GATES)
def test_gradients(name: str) -> None:
    heads = layer(GATES[name]())
    x = torch.randn(1, 3, DIM, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: heads(x, mask=regard.Causal()), (x, *heads.gate.parameters()))
    heads.train()(x).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in heads.gate.parameters())


def test_half_types_and_masked_rows() -> None:
    x = torch.randn(2, T, DIM)
    assert layer(OutputGate(DIM, HEADS)).bfloat16()(x.bfloat16()).dtype == torch.bfloat16
    heads = layer(OutputGate(DIM, HEADS, V)).float()
    empty = heads(x, mask=regard.Lengths([T, 0]))[1]
    assert torch.equal(empty, heads.out.bias.expand_as(empty))
    with torch.autocast("cpu", torch.bfloat16):
        assert heads(x).isfinite().all()
    x[0, 3] = torch.nan
    nan_rows = heads(x, mask=regard.Causal())[0].isnan().all(-1)
    assert nan_rows.tolist() == [False] * 3 + [True] * 4


def test_paths_for_plain_heads_refuse() -> None:
    heads = MultiHead(12, 3, gate=OutputGate(12, 3, 4, bias=True))
    x = torch.randn(2, 5, 12, requires_grad=True)
    assert "have a gate" in heads.explain(x)
    with pytest.raises(ValueError, match=r"nn.MultiheadAttention has no place for OutputGate\(12, 3, 4, bias=True\)"):
        heads.to_torch()
    assert attention_reason(heads) == "its heads have OutputGate(12, 3, 4, bias=True)"
    assert "gate=OutputGate(12, 3, 4, bias=True)" in repr(heads)


def test_layers_of_models_run_the_parts_or_refuse() -> None:
    """Quantised, packed and native layers of a Transformer give what the layers themselves give."""
    from regard.layers import native_decoder
    from regard.layers.packed_layers import packed_layers
    from regard.layers.transformer import EncoderLayer

    for extra in ({"gate": OutputGate(64, 2)}, {"qk_norm": RMSQKNorm(32)}):
        layers = nn.ModuleList([EncoderLayer(64, 96, MultiHead(64, 2, **extra), residual="pre", dropout=0.0)]).eval()
        x = torch.randn(1, 5, 64)
        with torch.no_grad():
            assert packed_layers(layers, x[0].clone(), [5], torch.arange(5)) is None
            assert native_decoder.native_encode(layers, nn.LayerNorm(64), x, torch.tensor([5])) is None
            want = layers[0](x)
            regard.quantize(layers)
            torch.testing.assert_close(layers[0](x), want, rtol=0.1, atol=0.1)


ERRORS: dict[str, tuple[Callable[[], object], str]] = {
    "width": (
        lambda: MultiHead(12, 3, gate=OutputGate(10, 3)),
        r"gate must weight 3 heads of width 4 by inputs 12 wide, got OutputGate\(10, 3\); try OutputGate\(12, 3\), or ",
    ),
    "heads": (lambda: MultiHead(12, 3, gate=OutputGate(12, 2)), r"3 heads of width 4 .* got OutputGate\(12, 2\)"),
    "channels": (lambda: MultiHead(12, 3, gate=OutputGate(12, 3, 5)), r"got OutputGate\(12, 3, 5\); try "),
    "zero": (lambda: OutputGate(12, 0), "heads must be a whole number, 1 or more, for OutputGate"),
    "part": (
        lambda: OutputGate(12, 3)(torch.randn(2, 5, 1, 4), torch.randn(2, 5, 12)),
        "weights 3 heads, but this process has 1 of them",
    ),
}


@for_each("name", ERRORS)
def test_bad_gates(name: str) -> None:
    make, message = ERRORS[name]
    with pytest.raises(ValueError, match=message):
        make()


def test_a_switch_is_no_gate() -> None:
    with pytest.raises(TypeError, match=r"gate must be an OutputGate, got True; write gate=OutputGate\(dim, heads\)"):
        MultiHead(12, 3, gate=True)  # type: ignore[arg-type]
