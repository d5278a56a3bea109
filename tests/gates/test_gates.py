"""The laws of gates over the whole catalogue: a new gate is tested by being listed."""

import copy

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

from regard import GATES, Need, gate
from regard.gates import Gate
from regard.gates.catalogue import GROUPS

# sizes that share no factor: a swapped axis must fail
B, C = 3, 7
SPACES = {1: (11,), 2: (5, 8), 3: (2, 5, 3)}
IN_PLACE = [name for name in GATES if isinstance(gate(name, C), Gate)]
READING = ["gated-heads", "gated-units", "gated-cell", "attention-module"]
FREE = [name for name in IN_PLACE if not list(gate(name, C).parameters())]

every = for_each("name", GATES)


def seeded_gate(name: str, channels: int = C, dims: int = 2) -> nn.Module:
    torch.manual_seed(1)
    module = gate(name, channels, dims)
    for parameter in module.parameters():
        if parameter.ndim == 0:  # the residual scale of non-local, which starts at zero
            nn.init.constant_(parameter, 0.7)
    return module


def a_map(dims: int = 2, channels: int = C, b: int = B, **kind: torch.dtype) -> Tensor:
    torch.manual_seed(2)
    return torch.randn(b, channels, *SPACES[dims], **kind)


def weights(module: nn.Module, x: Tensor) -> Tensor:
    found = module.attend(x, need=Need(weights=True)).weights
    assert found is not None
    return found


def test_properties_of_known_gates() -> None:
    """Properties are read from the modules: these are certain."""
    assert {"se", "eca", "spatial", "cbam", "bam", "coordinate", *READING, "simam", "max"} <= set(IN_PLACE)
    blocks = {"non-local", "dual", "offset", "global-context", "double", "selective-kernel", "split"}
    assert set(GATES) - set(IN_PLACE) == {*blocks, "external", "external-heads"}
    assert {"gap", *GROUPS["every value, without parameters"]} == set(FREE)


@every
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_signals_images_and_volumes(name: str, dims: int, training: bool) -> None:
    module, x = seeded_gate(name, dims=dims).train(training), a_map(dims)
    out = module(x)
    assert out.shape == x.shape
    assert out.isfinite().all()


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_out_is_weights_times_x(name: str, dims: int) -> None:
    module, x = seeded_gate(name, dims=dims).eval(), a_map(dims)
    got = module.attend(x, need=Need(weights=True))
    assert torch.broadcast_shapes(got.weights.shape, x.shape) == x.shape
    torch.testing.assert_close(got.weights * x, got.out, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(module(x), got.out)
    torch.testing.assert_close(module.weights(x), got.weights)
    assert module.attend(x).weights is None


@every
@pytest.mark.parametrize("space", [(1, 1), (1, 9), (13, 2), (2, 2)])
def test_any_size(name: str, space: tuple[int, int]) -> None:
    module = seeded_gate(name)
    for b in (1, 2):
        for training in (True, False):
            out = module.train(training)(torch.randn(b, C, *space))
            assert out.shape == (b, C, *space)
            assert out.isfinite().all()


@every
@pytest.mark.parametrize("channels", [1, 2, 3, 15, 17, 40])
def test_any_number_of_channels(name: str, channels: int) -> None:
    """Also fewer than the reduction."""
    x = a_map(channels=channels).requires_grad_()
    module = seeded_gate(name, channels)
    module(x).square().sum().backward()
    assert x.grad.isfinite().all()


@every
def test_an_empty_batch(name: str) -> None:
    assert seeded_gate(name).eval()(torch.randn(0, C, 5, 8)).shape == (0, C, 5, 8)


@every
def test_channels_last_is_kept(name: str) -> None:
    module, x = seeded_gate(name).eval(), a_map()
    out = module(x.to(memory_format=torch.channels_last))
    assert out.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(out, module(x), rtol=1e-5, atol=1e-5)


@every
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_types(name: str, kind: torch.dtype) -> None:
    module, x = seeded_gate(name).eval(), a_map()
    x = x.to(kind)
    want = module(x.float())
    out = module.to(kind)(x)
    assert out.dtype == kind
    torch.testing.assert_close(out.float(), want, rtol=0.05, atol=0.1)
    assert weights(module, x).dtype == kind


@pytest.mark.parametrize("name", ["se", "simam", "cbam"])
def test_statistics_of_half_types_do_not_overflow(name: str) -> None:
    """A sum of 64 · 64 values of 60 is beyond what float16 holds."""
    x = 60 + torch.randn(1, 4, 64, 64)
    module = seeded_gate(name, 4).eval()
    torch.testing.assert_close(module.half()(x.half()).float(), module.float()(x.half().float()), rtol=0.01, atol=0.05)


@every
def test_autocast(name: str) -> None:
    module, x = seeded_gate(name).eval(), a_map()
    with torch.autocast("cpu", torch.bfloat16):
        out = module(x)
    torch.testing.assert_close(out.float(), module(x), rtol=0.05, atol=0.1)


@for_each("name", GATES, share=0.5)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients(name: str, dims: int) -> None:
    module = seeded_gate(name, 3, dims).double().eval()
    x = torch.randn(2, 3, *(2, 3, 2)[:dims], dtype=torch.float64, requires_grad=True)
    names, values = zip(*module.named_parameters(), strict=True) if name not in FREE else ((), ())

    def call(x: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(module, dict(zip(names, values, strict=True)), x)

    # of all parameters at once by a random direction, of the map number by number
    assert gradcheck(call, (x, *values), fast_mode=True)
    # the layers of the gates that read have their own test, number by number
    assert name in READING or gradcheck(module, x)
    assert gradgradcheck(module, x, fast_mode=True)


@every
def test_every_parameter_has_a_gradient(name: str) -> None:
    module = seeded_gate(name)
    if name not in FREE:
        assert sum(1 for _ in module.parameters())
    module(a_map().requires_grad_()).square().sum().backward()
    for key, parameter in module.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key


@every
def test_state_round_trips(name: str) -> None:
    module, x = seeded_gate(name).eval(), a_map()
    again = gate(name, C)
    again.load_state_dict(module.state_dict())
    assert torch.equal(again.eval()(x), module(x))
    assert torch.equal(copy.deepcopy(module)(x), module(x))
    assert not module.state_dict() or name not in FREE


@every
def test_batched_is_one_by_one(name: str) -> None:
    module, x = seeded_gate(name).eval(), a_map()
    torch.testing.assert_close(torch.cat([module(one) for one in x.split(1)]), module(x), rtol=1e-5, atol=1e-6)


# attention, and max pooling with indices, have no batching rule of their own
@for_each("name", [name for name in GATES if name not in ("non-local", "max")])
def test_vmap_and_plain_operations_agree(name: str) -> None:
    module, x = seeded_gate(name).eval(), a_map()
    out = torch.func.vmap(lambda one: module(one.unsqueeze(0)).squeeze(0))(x)
    torch.testing.assert_close(out, module(x), rtol=1e-5, atol=1e-6)


@pytest.mark.whole
@pytest.mark.parametrize("name", ["se", "simam", "eca", "cbam"])
def test_export(name: str) -> None:
    module, x = seeded_gate(name).eval(), a_map()
    exported = torch.export.export(module, (x,), strict=False)
    torch.testing.assert_close(exported.module()(x), module(x))


@pytest.mark.whole
@every
def test_compile(name: str) -> None:
    """A network with inserted gates is compiled and exported by `make test`, in test_insert.py."""
    torch.compiler.reset()  # every gate anew: torch limits how often one function is compiled
    module, x = seeded_gate(name).eval(), a_map().requires_grad_()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    got, want = compiled(x), module(x)
    torch.testing.assert_close(got, want)
    grad = torch.randn_like(x)
    torch.testing.assert_close(
        torch.autograd.grad(got, x, grad)[0], torch.autograd.grad(want, x, grad)[0], rtol=1e-5, atol=1e-5
    )
