"""What torch does to programs: compile, export, vmap, grad, autocast. Each gives what the plain call gives."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.attn.backends.cases import close
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard import Attention, MultiHead
from regard.kernels.torch_versions import at_least

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
    "entmax-trained": lambda: Masked(Attention(normalize=regard.Entmax(regard.Learnable(1.4))), causal=False),
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


# Dynamo of torch 2.8 and older traces no mask that is joined by & and no repr, and hides the sentence of an error
TRACES_OBJECTS = pytest.mark.skipif(not at_least("2.9"), reason="torch 2.9 is the first whose Dynamo traces objects")
JOINED = [name for name, program in PROGRAMS.items() if program().causal]


@for_each("name", [name for name in PROGRAMS if name not in JOINED], share=0.5)
def test_compiled_equals_plain(name: str) -> None:
    compiled_equals_plain(name)


@TRACES_OBJECTS
@for_each("name", JOINED, share=0.5)
def test_compiled_with_joined_masks_equals_plain(name: str) -> None:
    compiled_equals_plain(name)


def compiled_equals_plain(name: str) -> None:
    program = PROGRAMS[name]()
    x, lengths = torch.randn(2, T, DIM), torch.tensor([3, 5])
    want = outcome(program, x, lengths)
    torch._dynamo.reset()
    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    for got, wanted in zip(outcome(compiled, x, lengths), want, strict=True):
        close(got, wanted, name, rtol=1e-4, atol=1e-5)


# the C++ compiler takes long
@TRACES_OBJECTS
@pytest.mark.whole
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
    exported = torch.export.export(program, (x, lengths), strict=False).module()
    close(exported(x, lengths), program(x, lengths), name, rtol=1e-5, atol=1e-6)


TERMS = {
    "plain": dict,
    "causal": lambda: {"mask": regard.Causal()},
    "additive": lambda: {"score": regard.Additive(DIM, DIM, 6)},
    "sparsemax": lambda: {"normalize": regard.Sparsemax()},
    "entmax": lambda: {"normalize": regard.Entmax(1.3)},
    "shaw": lambda: {"bias": regard.Shaw(DIM, 2), "mask": regard.Window(2, 0)},
    "linear": lambda: {"score": regard.scores.Kernel(), "normalize": regard.normalizers.Sum()},
}


@for_each("name", TERMS)
def test_vmap_equals_a_loop(name: str) -> None:
    terms = TERMS[name]()
    q, k, v = (torch.randn(3, T, DIM) for _ in range(3))
    whole = regard.attention(q, k, v, **terms)
    got = torch.func.vmap(lambda q, k, v: regard.attention(q, k, v, **terms))(q, k, v)
    close(got, whole, name, rtol=1e-4, atol=1e-5)


@for_each("name", TERMS)
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


TRANSFORMS: dict[str, Callable[[Callable[[Tensor], Tensor], Tensor], Any]] = {
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x.cos(),))[1],
    "grad": lambda f, x: torch.func.grad(lambda x: f(x).square().sum())(x),
}


@TRACES_OBJECTS
@for_each("name", ["additive", "sparsemax", "entmax"])
def test_transforms_that_are_compiled_equal_plain_ones(name: str) -> None:
    """Operators have no rule for them, and an operator without a rule has a derivative of zero in forward mode."""
    terms, x = TERMS[name](), torch.randn(2, T, DIM)
    for what, transform in TRANSFORMS.items():

        def program(x: Tensor, transform: Any = transform) -> Any:
            return transform(lambda x: regard.attention(x, x, **terms), x)

        torch._dynamo.reset()
        close(torch.compile(program, backend="aot_eager")(x), program(x), f"{name} {what}", rtol=1e-4, atol=1e-5)


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
        past = layer.project_kv(x[:, :3])
        past = layer.project_kv(x[:, 3:], past=past)
        close(layer(x[:, 3:], past), plain.detach()[:, 3:], "steps", rtol=1e-5, atol=1e-6)


# what differs from one document or window to the next is read from values only where values may be read
MASKED = {
    "window": lambda: {"mask": regard.Window(2, 1)},
    "documents": lambda: {"mask": regard.Documents(torch.tensor([[0, 0, 1, 1, 1], [2, 0, 2, 0, 2]]))},
    "nobody": lambda: {"mask": regard.Lengths(torch.tensor([0, 5]))},
    "shaw": lambda: {"mask": regard.Window(2, 0), "bias": regard.Shaw(DIM, 2)},
    "sparsemax": lambda: {
        "mask": regard.Causal() & regard.Documents(torch.tensor([0, 0, 1, 1, 1])),
        "normalize": regard.Sparsemax(),
    },
    "additive": lambda: {"mask": regard.Window(1, 1), "score": regard.Additive(DIM, DIM, 6)},
}


@TRACES_OBJECTS
@for_each("name", MASKED, share=0.5)
def test_compiled_whole_under_masks_that_blocks_would_follow(name: str) -> None:
    terms = MASKED[name]()
    layer = Attention(**{key: term for key, term in terms.items() if key != "mask"})

    def program(x: Tensor) -> Tensor:
        return layer(x, x, mask=terms["mask"])

    x = torch.randn(2, T, DIM)
    torch._dynamo.reset()
    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    g = torch.randn(2, T, DIM)
    outs = []
    for act in (program, compiled):
        leaf = x.clone().requires_grad_()
        out = act(leaf)
        outs.append([out, *torch.autograd.grad(out, [leaf, *layer.parameters()], g)])
    for want, got in zip(*outs, strict=True):
        assert torch.isfinite(got).all()
        close(got, want, name, rtol=1e-4, atol=1e-5)


@TRACES_OBJECTS
def test_blocked_refuses_to_be_compiled() -> None:
    layer = Attention(backend="blocked")
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: layer(x, x, mask=regard.Window(1, 0)), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="its loop over blocks is not compiled"):
        compiled(torch.randn(2, T, DIM))


WAYS = {"q": (0, None, None), "k": (None, 0, None), "v": (None, None, 0), "kv": (None, 0, 0), "qkv": (0, 0, 0)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TERMS)
def test_vmap_over_some_of_the_tensors(name: str, way: str) -> None:
    terms = TERMS[name]()
    q, k, v = (torch.randn(*([3] if axis == 0 else []), T, DIM) for axis in WAYS[way])
    with torch.no_grad():
        got = torch.func.vmap(lambda q, k, v: regard.attention(q, k, v, **terms), in_dims=WAYS[way])(q, k, v)
        for n in range(3):
            one = [t[n] if axis == 0 else t for t, axis in zip((q, k, v), WAYS[way], strict=True)]
            close(got[n], regard.attention(*one, **terms), name, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("argument", [0, 1, 2], ids=["q", "k", "v"])
@pytest.mark.parametrize("name", TERMS)
def test_jacobians_of_one_argument(name: str, argument: int) -> None:
    terms = TERMS[name]()
    inputs = [torch.randn(T, DIM) for _ in range(3)]

    def out(*qkv: Tensor) -> Tensor:
        return regard.attention(*qkv, **terms)

    got = torch.func.jacrev(out, argnums=argument)(*inputs)

    def of_one(t: Tensor) -> Tensor:
        return out(*(t if n == argument else x for n, x in enumerate(inputs)))

    want = torch.autograd.functional.jacobian(of_one, inputs[argument])
    close(got, want, name, rtol=1e-4, atol=1e-5)
    slope = torch.func.grad(lambda t: of_one(t).square().sum())(inputs[argument])
    close(slope, 2 * torch.einsum("qv,qvkd->kd", out(*inputs), want), "gradient", rtol=1e-3, atol=1e-4)


BFLOAT = {
    "dot": dict,
    "window": lambda: {"mask": regard.Window(2, 0)},
    "nobody": lambda: {"mask": regard.Lengths(torch.tensor([0, 5]))},
    "blocked": lambda: {"mask": regard.Causal(), "backend": "blocked"},
    "blocked-sparsemax": lambda: {"mask": regard.Causal(), "normalize": regard.Sparsemax(), "backend": "blocked"},
    "blocked-shaw": lambda: {"bias": regard.Shaw(DIM, 2), "backend": "blocked"},
    "additive": lambda: {"score": regard.Additive(DIM, DIM, 6), "mask": regard.Causal()},
    "cosine": lambda: {"score": regard.Cosine(regard.Learnable(10.0)), "normalize": regard.Entmax(1.5)},
    "distance": lambda: {"score": regard.Distance(1), "normalize": regard.Sigmoid(-1.0)},
    "linear": lambda: {"score": regard.scores.Kernel(), "normalize": regard.normalizers.Sum()},
    "gaussian": lambda: {"bias": regard.biases.LocalGaussian(DIM, 3), "mask": regard.Causal()},
}


@for_each("name", BFLOAT)
def test_gradients_under_autocast_are_finite_and_near(name: str) -> None:
    terms = BFLOAT[name]()
    learned = [p for term in terms.values() if isinstance(term, nn.Module) for p in term.parameters()]
    inputs = [torch.randn(2, T, DIM, requires_grad=True) for _ in range(3)]
    g = torch.randn(2, T, DIM)
    want = torch.autograd.grad(regard.attention(*inputs, **terms), [*inputs, *learned], g)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = regard.attention(*inputs, **terms)
    assert out.dtype == torch.bfloat16
    got = torch.autograd.grad(out, [*inputs, *learned], g.bfloat16())
    size = max(float(slope.norm()) for slope in want)
    for slope, wanted in zip(got, want, strict=True):
        assert slope.dtype == torch.float32
        assert torch.isfinite(slope).all()
        assert (slope - wanted).norm() < 0.1 * wanted.norm() + 0.02 * size
