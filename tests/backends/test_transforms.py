"""What torch does to programs: compile, export, vmap, grad, autocast. Each gives what the plain call gives."""

import pytest
import torch
from tests.backends.cases import close
from torch import Tensor, nn

import regard
from regard import Attention, MultiHead

DIM, HEADS, T = 12, 3, 5


class Masked(nn.Module):
    """A layer with the mask of its padding."""

    def __init__(self, layer: nn.Module, causal: bool) -> None:
        super().__init__()
        self.layer = layer
        self.causal = causal

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        mask: regard.Mask = regard.Lengths(lengths)
        if self.causal:
            mask = regard.Causal() & mask
        return self.layer(x, x, mask=mask)


PROGRAMS = {
    "dot": lambda: Masked(Attention(), causal=True),
    "additive": lambda: Masked(Attention(regard.Additive(DIM, DIM, 6)), causal=False),
    "sparsemax": lambda: Masked(Attention(regard.Bilinear(DIM, DIM), normalize=regard.Sparsemax()), causal=True),
    "entmax-trained": lambda: Masked(Attention(normalize=regard.Entmax(regard.Trained(1.4))), causal=False),
    "rotary": lambda: Masked(MultiHead(DIM, HEADS, rotate=regard.Rotary(4)), causal=True),
    "grouped-xl": lambda: Masked(
        MultiHead(DIM, HEADS, kv_heads=1, attention=Attention(bias=regard.RelativeXL(6, HEADS, 4))), causal=True
    ),
}


def outcome(program: nn.Module, x: Tensor, lengths: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = program(x, lengths)
    torch.manual_seed(3)
    loss = (out * torch.randn_like(out)).sum()
    return [out.detach(), *torch.autograd.grad(loss, [x, *program.parameters()])]


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_equals_plain(name: str) -> None:
    program = PROGRAMS[name]()
    x, lengths = torch.randn(2, T, DIM), torch.tensor([3, 5])
    want = outcome(program, x, lengths)
    torch._dynamo.reset()
    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    for got, wanted in zip(outcome(compiled, x, lengths), want, strict=True):
        close(got, wanted, name, rtol=1e-4, atol=1e-5)


def test_compiled_by_the_code_generator_equals_plain() -> None:
    program = PROGRAMS["rotary"]()
    x, lengths = torch.randn(2, T, DIM), torch.tensor([3, 5])
    want = outcome(program, x, lengths)
    torch._dynamo.reset()
    for got, wanted in zip(outcome(torch.compile(program, fullgraph=True), x, lengths), want, strict=True):
        close(got, wanted, "inductor", rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["rotary", "additive"])
def test_exported_equals_plain(name: str) -> None:
    program = PROGRAMS[name]().eval()
    x, lengths = torch.randn(2, T, DIM), torch.tensor([3, 5])
    exported = torch.export.export(program, (x, lengths)).module()
    close(exported(x, lengths), program(x, lengths), name, rtol=1e-5, atol=1e-6)


TERMS = {
    "plain": dict,
    "causal": lambda: {"mask": regard.Causal()},
    "additive": lambda: {"score": regard.Additive(DIM, DIM, 6)},
    "sparsemax": lambda: {"normalize": regard.Sparsemax()},
    "entmax": lambda: {"normalize": regard.Entmax(1.3)},
    "shaw": lambda: {"bias": regard.Shaw(DIM, 2), "mask": regard.Window(2, 0)},
    "linear": lambda: {"score": regard.Kernel(), "normalize": regard.Sum()},
}


@pytest.mark.parametrize("name", TERMS)
def test_vmap_equals_a_loop(name: str) -> None:
    terms = TERMS[name]()
    q, k, v = (torch.randn(3, T, DIM) for _ in range(3))
    whole = regard.attention(q, k, v, **terms)
    got = torch.func.vmap(lambda q, k, v: regard.attention(q, k, v, **terms))(q, k, v)
    close(got, whole, name, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", TERMS)
def test_functional_gradients_equal_autograd(name: str) -> None:
    terms = TERMS[name]()
    q, k, v = (torch.randn(2, T, DIM) for _ in range(3))

    def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return regard.attention(q, k, v, **terms).square().sum()

    got = torch.func.grad(loss, argnums=(0, 1, 2))(q, k, v)
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    for slope, want in zip(got, torch.autograd.grad(loss(*leaves), leaves), strict=True):
        close(slope, want, name, rtol=1e-4, atol=1e-5)
    each = torch.func.vmap(torch.func.grad(loss))(q, k, v)
    close(each, got[0], "one gradient a sample", rtol=1e-4, atol=1e-5)


def test_a_module_called_functionally() -> None:
    layer = MultiHead(DIM, HEADS)
    x = torch.randn(2, T, DIM)
    weights = dict(layer.named_parameters())

    def loss(weights: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(layer, weights, (x,), {"mask": regard.Causal()}).square().sum()

    got = torch.func.grad(loss)(weights)
    want = torch.autograd.grad(loss(weights), list(weights.values()))
    for name, wanted in zip(weights, want, strict=True):
        close(got[name], wanted, name, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "grouped-xl"])
def test_autocast_is_near(name: str) -> None:
    program = PROGRAMS[name]()
    x, lengths = torch.randn(2, T, DIM, requires_grad=True), torch.tensor([3, 5])
    plain = program(x, lengths)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = program(x, lengths)
    assert got.dtype == torch.bfloat16
    assert (got.float() - plain).norm() < 0.05 * plain.norm()
    got.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in (x, *program.parameters()))


def test_inference_mode_and_no_grad_give_the_same() -> None:
    layer = MultiHead(DIM, HEADS, kv_heads=1, rotate=regard.Rotary(4), attention=Attention(mask=regard.Causal()))
    x = torch.randn(2, T, DIM)
    plain = layer(x)
    with torch.inference_mode():
        close(layer(x), plain.detach(), "inference", rtol=1e-5, atol=1e-6)
        past = layer.remember(x[:, :3])
        past = layer.remember(x[:, 3:], past)
        close(layer(x[:, 3:], past), plain.detach()[:, 3:], "steps", rtol=1e-5, atol=1e-6)
