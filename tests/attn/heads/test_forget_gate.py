"""Forget gates: the formula, steps, hypotheses that share a cache, half types, and what is refused."""

import copy
import math

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard import Attention, Causal, MultiHead
from regard.layers import ForgetGate

B, N, D, H = 2, 13, 12, 3
MASKS: dict[str, regard.Mask] = {
    "causal": Causal(),
    "window": regard.Window(4, 0),
    "padded": Causal() & regard.Lengths(torch.tensor([N, 7])),
    "packed": Causal() & regard.Documents(torch.tensor([[0] * 5 + [1] * 8, [0] * 9 + [1] * 4])),
}


def layer(gate_bias: float = 0.0, kv_heads: int = H, **terms: object) -> MultiHead:
    torch.manual_seed(0)
    forget = ForgetGate(D, kv_heads, bias=gate_bias)
    return MultiHead(D, H, kv_heads=kv_heads, attention=Attention(**terms), forget=forget)  # type: ignore[arg-type]


def tokens(n: int = N) -> Tensor:
    return torch.randn(B, n, D, generator=torch.Generator().manual_seed(1))


def reference(heads: MultiHead, x: Tensor, mask: regard.Mask, normalize: nn.Module | None = None) -> Tensor:
    """fla's naive_forgetting_attn: scores plus C_i − C_j, C the running sum of log f, in float64."""
    heads, x = copy.deepcopy(heads).double(), x.double()
    q, k, v = (part(x).unflatten(-1, (-1, D // H)).transpose(1, 2) for part in (heads.query, heads.key, heads.value))
    gates = nn.functional.logsigmoid(heads.forget.map(x)).cumsum(1).transpose(1, 2)
    k, v, gates = (t.repeat_interleave(H // t.shape[1], dim=1) for t in (k, v, gates))
    s = q @ k.mT / math.sqrt(D // H) + gates.unsqueeze(-1) - gates.unsqueeze(-2)
    allowed = mask.fit((B, H), N, N, x.device).dense(torch.arange(N), torch.arange(N))
    allowed = allowed.unsqueeze(1) if allowed.ndim > 2 else allowed
    weights = (normalize or regard.Softmax())(s, allowed.expand_as(s))
    return heads.out((weights @ v).transpose(1, 2).flatten(-2))


@for_each("name", MASKS)
def test_the_formula(name: str) -> None:
    for heads in (layer(), layer(kv_heads=1), layer(2.0)):
        got = heads(tokens(), mask=MASKS[name])
        torch.testing.assert_close(got.double(), reference(heads, tokens(), MASKS[name]), rtol=1e-5, atol=1e-5)


@for_each("normalize", [regard.Sparsemax(), regard.Entmax(1.5), regard.TopK(3)], ids=repr)
def test_normalizers_that_a_constant_does_not_change(normalize: regard.Normalizer) -> None:
    heads = layer(normalize=normalize)
    want = reference(heads, tokens(), Causal(), normalize)
    torch.testing.assert_close(heads(tokens(), mask=Causal()).double(), want, rtol=1e-4, atol=1e-5)


def test_open_gates_are_no_bias() -> None:
    heads, plain = layer(30.0), MultiHead(D, H)
    plain.load_state_dict({name: t for name, t in heads.state_dict().items() if not name.startswith("forget")})
    torch.testing.assert_close(heads(tokens(), mask=Causal()), plain(tokens(), mask=Causal()), rtol=1e-5, atol=1e-5)


def test_gradients_are_those_of_the_formula() -> None:
    heads, x = layer().double(), tokens().double().requires_grad_()
    leaves = [x, *heads.parameters()]
    got = torch.autograd.grad(heads(x, mask=Causal()).square().sum(), leaves)
    want = torch.autograd.grad(_formula_of(heads, x).square().sum(), leaves)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other)
    assert torch.autograd.gradcheck(lambda x: heads(x, mask=Causal()), x[:1, :5].detach().requires_grad_())


def _formula_of(heads: MultiHead, x: Tensor) -> Tensor:
    """The formula by the layer's own parameters: a bias per pair in place of the column."""
    gates = nn.functional.logsigmoid(heads.forget.map(x)).cumsum(1).transpose(1, 2)
    bias = gates.unsqueeze(-1) - gates.unsqueeze(-2)
    plain = copy.copy(heads)
    plain._modules = {**heads._modules, "forget": None}
    return plain(x, mask=bias.masked_fill(~torch.ones(N, N, dtype=torch.bool).tril(), -torch.inf))


@pytest.mark.parametrize("grad", [True, False], ids=["with gradients", "without"])
def test_steps_are_the_whole(grad: bool) -> None:
    heads, x, past, outs = layer(), tokens(), None, []
    with torch.set_grad_enabled(grad):
        whole = heads(x, mask=Causal())
        for part in x.split([1, 4, 1, 1, 6], dim=1):
            out, past = heads.step(part, past, mask=Causal())
            outs.append(out)
        torch.testing.assert_close(torch.cat(outs, 1), whole, rtol=1e-4, atol=1e-5)
        assert past is not None
        torch.testing.assert_close(heads(x[:, -1:], past), whole[:, -1:], rtol=1e-4, atol=1e-5)


def test_hypotheses_and_padding_in_one_cache_keep_their_own_past() -> None:
    """A prompt of 5 tokens, the last 2 padding, then two hypotheses for two steps, side by side in the cache."""
    heads, x = layer(), tokens()
    prompt, new = x[:1, :5], x[:1, 5:9]  # h1 reads new tokens 0 and 2, h2 1 and 3
    _, past = heads.step(prompt, mask=Causal() & regard.Lengths(torch.tensor([3])))
    seen = torch.zeros(1, 2, 5, dtype=torch.bool)
    seen[..., :3] = True
    paths = torch.eye(2, dtype=torch.bool).unsqueeze(0)
    _, past = heads.step(new[:, :2], past, mask=regard.BooleanMask(torch.cat([seen, paths], -1)))
    out, past = heads.step(new[:, 2:], past, mask=regard.BooleanMask(torch.cat([seen, paths, paths], -1)))
    for n in range(2):
        alone = torch.cat([prompt[:, :3], new[:, n : n + 1], new[:, 2 + n : 3 + n]], 1)
        torch.testing.assert_close(out[:, n], heads(alone, mask=Causal())[:, -1], rtol=1e-4, atol=1e-5)
    seen_tensor = torch.cat([seen, paths, paths], -1)
    torch.testing.assert_close(heads(new[:, 2:], past, mask=seen_tensor), out, rtol=1e-4, atol=1e-5)


@for_each("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_types_keep_a_long_sum(dtype: torch.dtype) -> None:
    """C falls to about −1,400 here, where bfloat16 has steps of 8."""
    heads, x = layer(), tokens(2000)
    wide = copy.deepcopy(heads).to(dtype).float()(x.to(dtype).float(), mask=Causal())
    half = copy.deepcopy(heads).to(dtype)(x.to(dtype), mask=Causal())
    assert half.dtype == dtype
    torch.testing.assert_close(half.float(), wide, rtol=0.05, atol=0.05)
    if dtype == torch.bfloat16:
        with torch.autocast("cpu", dtype):
            cast = heads(x, mask=Causal())
        torch.testing.assert_close(cast.float(), heads(x, mask=Causal()), rtol=0.05, atol=0.05)


def test_a_fused_kernel_computes_the_column() -> None:
    x = tokens(300)
    text = layer().explain(x, x, mask=Causal())
    assert "fused    runs: torch's scaled_dot_product_attention" in text
    assert "layer    cannot: the heads are more than a softmax of dot products" in text
    assert f"forget=ForgetGate({D}, {H})" in repr(layer())
    with torch.no_grad():
        assert "cannot: " in layer().explain_step(x[:, :1], layer().project_kv(x)).splitlines()[2]


def test_what_it_cannot_be_a_column_of_is_refused() -> None:
    for match, terms in (
        (r"forget is added to dot products, got score=Additive\(4, 4, 5\)", {"score": regard.Additive(4, 4, 5)}),
        (r"changes the weights of Sigmoid\(bias=0\); use Softmax\(\), Sparsemax", {"normalize": regard.Sigmoid()}),
        (r"forget widens the queries, which Shaw\(4, clip=16\) reads", {"bias": regard.Shaw(4)}),
    ):
        with pytest.raises(ValueError, match=match):
            layer(**terms)
    with pytest.raises(
        ValueError, match=r"^forget must have a gate for each of 3 key heads from inputs 12 wide, got Fo"
    ):
        MultiHead(D, H, forget=ForgetGate(D, 2))
    with pytest.raises(ValueError, match="and attention is a list with one per head; pass one for all heads"):
        MultiHead(D, H, attention=[Attention() for _ in range(H)], forget=ForgetGate(D, H))
    with pytest.raises(TypeError, match="forget must be"):
        MultiHead(D, H, forget=True)  # type: ignore[arg-type]
    forget = ForgetGate(D, H)
    with pytest.raises(ValueError, match="has 3 gates, but this process has 2 key heads; leave forget out of a tensor"):
        forget.extend_keys(torch.randn(B, 2, N, 4), tokens(), None, None, Attention())


@for_each("chunks", [[13], [5, 8], [1, 2, 4, 6]], ids=str)
def test_chunks_longer_than_the_window_of_a_tensor_are_the_whole(chunks: list[int]) -> None:
    """A token that sees none of the past continues those of its call that it sees."""
    heads, x, past, outs = layer(), tokens(), None, []
    window = regard.Window(2, 0).dense(torch.arange(N), torch.arange(N))
    with torch.no_grad():
        for part in x.split(chunks, dim=1):
            start = 0 if past is None else len(past)
            end = start + part.shape[1]
            out, past = heads.step(part, past, mask=window[start:end, :end])
            outs.append(out)
        torch.testing.assert_close(torch.cat(outs, 1), heads(x, mask=window), rtol=1e-4, atol=1e-5)


def test_a_call_without_a_cache_sums_over_tokens_that_are_hidden() -> None:
    """Beside the text hidden tokens change nothing; in the middle their gates count."""
    heads, x = layer(), tokens()
    for hidden, is_absent in ((slice(0, 3), True), (slice(10, 13), True), (slice(5, 7), False)):
        seen = torch.ones(N, dtype=torch.bool)
        seen[hidden] = False
        got = heads(x, mask=Causal() & regard.BooleanMask(seen.expand(N, N)))[:, seen]
        absent = heads(x[:, seen], mask=Causal())
        assert torch.allclose(got, absent, rtol=1e-4, atol=1e-5) == is_absent


def test_sums_beyond_the_range_of_float16() -> None:
    """The last tokens are more than 65,504 columns of one away from the first."""
    heads, x = layer().half(), torch.randn(1, 300, D, generator=torch.Generator().manual_seed(0)).half()
    with torch.no_grad():
        heads.forget.map.bias.fill_(-800.0)
        got = heads(x, mask=Causal())
        want = heads.double()(x.double(), mask=Causal())
    torch.testing.assert_close(got.double(), want, rtol=0, atol=5e-3)
