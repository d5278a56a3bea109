"""The laws of gates over the whole catalogue: a new gate is tested by being listed."""

import copy

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

from regard import GATES, Need, gate
from regard.gates import BAM, CBAM, Coordinate, ExternalBlock, Gate, SqueezeExcite
from regard.gates.catalogue import GROUPS

# sizes that share no factor: a swapped axis must fail
B, C = 3, 7
SPACES = {1: (11,), 2: (5, 8), 3: (2, 5, 3)}
IN_PLACE = [name for name in GATES if isinstance(gate(name, C), Gate)]
READING = ["gated-heads", "gated-units", "gated-cell", "attention-module"]
FREE = [name for name in IN_PLACE if not list(gate(name, C).parameters())]

every = for_each("name", GATES)


def built(name: str, channels: int = C, dims: int = 2) -> nn.Module:
    torch.manual_seed(1)
    made = gate(name, channels, dims)
    for parameter in made.parameters():
        if parameter.ndim == 0:  # the residual scale of non-local, which starts at zero
            nn.init.constant_(parameter, 0.7)
    return made


def a_map(dims: int = 2, channels: int = C, b: int = B, **kind: torch.dtype) -> Tensor:
    torch.manual_seed(2)
    return torch.randn(b, channels, *SPACES[dims], **kind)


def weights(made: nn.Module, x: Tensor) -> Tensor:
    found = made.attend(x, need=Need(weights=True)).weights
    assert found is not None
    return found


def test_properties_of_known_gates() -> None:
    """Properties are read from the modules: these are certain."""
    assert {"se", "eca", "spatial", "cbam", "bam", "coordinate", *READING, "simam", "max"} <= set(IN_PLACE)
    assert not {"non-local", "external", "external-heads"} & set(IN_PLACE)
    assert {"gap", *GROUPS["every value, without parameters"]} == set(FREE)


@every
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_signals_images_and_volumes(name: str, dims: int, training: bool) -> None:
    made, x = built(name, dims=dims).train(training), a_map(dims)
    out = made(x)
    assert out.shape == x.shape
    assert out.isfinite().all()


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_out_is_weights_times_x(name: str, dims: int) -> None:
    made, x = built(name, dims=dims).eval(), a_map(dims)
    got = made.attend(x, need=Need(weights=True))
    assert torch.broadcast_shapes(got.weights.shape, x.shape) == x.shape
    torch.testing.assert_close(got.weights * x, got.out, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(made(x), got.out)
    torch.testing.assert_close(made.weights(x), got.weights)
    assert made.attend(x).weights is None


@every
@pytest.mark.parametrize("space", [(1, 1), (1, 9), (13, 2), (2, 2)])
def test_any_size(name: str, space: tuple[int, int]) -> None:
    made = built(name)
    for b in (1, 2):
        for training in (True, False):
            out = made.train(training)(torch.randn(b, C, *space))
            assert out.shape == (b, C, *space)
            assert out.isfinite().all()


@every
@pytest.mark.parametrize("channels", [1, 2, 3, 15, 17, 40])
def test_any_number_of_channels(name: str, channels: int) -> None:
    """Also fewer than the reduction."""
    x = a_map(channels=channels).requires_grad_()
    made = built(name, channels)
    made(x).square().sum().backward()
    assert x.grad.isfinite().all()


@every
def test_no_batch_at_all(name: str) -> None:
    assert built(name).eval()(torch.randn(0, C, 5, 8)).shape == (0, C, 5, 8)


@every
def test_channels_last_is_kept(name: str) -> None:
    made, x = built(name).eval(), a_map()
    out = made(x.to(memory_format=torch.channels_last))
    assert out.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(out, made(x), rtol=1e-5, atol=1e-5)


@every
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_types(name: str, kind: torch.dtype) -> None:
    made, x = built(name).eval(), a_map()
    x = x.to(kind)
    want = made(x.float())
    out = made.to(kind)(x)
    assert out.dtype == kind
    torch.testing.assert_close(out.float(), want, rtol=0.05, atol=0.1)
    assert weights(made, x).dtype == kind


@pytest.mark.parametrize("name", ["se", "simam", "cbam"])
def test_statistics_of_half_types_do_not_overflow(name: str) -> None:
    """A sum of 64 · 64 values of 60 is beyond what float16 holds."""
    x = 60 + torch.randn(1, 4, 64, 64)
    made = built(name, 4).eval()
    torch.testing.assert_close(made.half()(x.half()).float(), made.float()(x.half().float()), rtol=0.01, atol=0.05)


@every
def test_autocast(name: str) -> None:
    made, x = built(name).eval(), a_map()
    with torch.autocast("cpu", torch.bfloat16):
        out = made(x)
    torch.testing.assert_close(out.float(), made(x), rtol=0.05, atol=0.1)


@every
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients(name: str, dims: int) -> None:
    made = built(name, 3, dims).double().eval()
    x = torch.randn(2, 3, *(2, 3, 2)[:dims], dtype=torch.float64, requires_grad=True)
    names, values = zip(*made.named_parameters(), strict=True) if name not in FREE else ((), ())

    def call(x: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(made, dict(zip(names, values, strict=True)), x)

    # of all parameters at once by a random direction, of the map number by number
    assert gradcheck(call, (x, *values), fast_mode=True)
    # the layers of the gates that read have their own test, number by number
    assert name in READING or gradcheck(made, x)
    assert gradgradcheck(made, x, fast_mode=True)


@every
def test_every_parameter_has_a_gradient(name: str) -> None:
    made = built(name)
    if name not in FREE:
        assert sum(1 for _ in made.parameters())
    made(a_map().requires_grad_()).square().sum().backward()
    for key, parameter in made.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key


@every
def test_state_round_trips(name: str) -> None:
    made, x = built(name).eval(), a_map()
    again = gate(name, C)
    again.load_state_dict(made.state_dict())
    assert torch.equal(again.eval()(x), made(x))
    assert torch.equal(copy.deepcopy(made)(x), made(x))
    assert not made.state_dict() or name not in FREE


@every
def test_batched_is_one_by_one(name: str) -> None:
    made, x = built(name).eval(), a_map()
    torch.testing.assert_close(torch.cat([made(one) for one in x.split(1)]), made(x), rtol=1e-5, atol=1e-6)


# attention, and max pooling with indices, have no batching rule of their own
@for_each("name", [name for name in GATES if name not in ("non-local", "max")])
def test_vmap_and_plain_operations_agree(name: str) -> None:
    made, x = built(name).eval(), a_map()
    out = torch.func.vmap(lambda one: made(one.unsqueeze(0)).squeeze(0))(x)
    torch.testing.assert_close(out, made(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["se", "simam", "eca", "cbam"])
def test_export(name: str) -> None:
    made, x = built(name).eval(), a_map()
    exported = torch.export.export(made, (x,))
    torch.testing.assert_close(exported.module()(x), made(x))


@for_each("name", GATES, share=0.25)
def test_compile(name: str) -> None:
    torch.compiler.reset()  # every gate anew: torch limits how often one function is compiled
    made, x = built(name).eval(), a_map().requires_grad_()
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
    got, want = compiled(x), made(x)
    torch.testing.assert_close(got, want)
    grad = torch.randn_like(x)
    torch.testing.assert_close(
        torch.autograd.grad(got, x, grad)[0], torch.autograd.grad(want, x, grad)[0], rtol=1e-5, atol=1e-5
    )


BAD = {
    "no tensor": (TypeError, lambda: gate("simam", C)([1.0]), ["x must be a tensor, got list; wrap it"]),
    "integers": (TypeError, lambda: gate("se", C)(a_map().long()), ["x must be a floating tensor", "x.float()"]),
    "too few axes": (
        ValueError,
        lambda: gate("se", C)(torch.zeros(3, C)),
        ["x must be a map", "(3, 7)", "unsqueeze(0)"],
    ),
    "too many axes": (ValueError, lambda: gate("se", C)(torch.zeros(1, C, 1, 1, 1, 1)), ["x must be a map", "flatten"]),
    "a signal for images": (
        ValueError,
        lambda: gate("cbam", C)(a_map(1)),
        ["(batch, channels, height, width)", "CBAM", "(3, 7, 11)", "dims=1"],
    ),
    "channels last": (
        ValueError,
        lambda: gate("se", C)(torch.zeros(1, 5, 8, C)),
        [
            "7 channels for SqueezeExcite, got (1, 5, 8, 7)",
            "for 5",
            ", or move the channels there with x.movedim(-1, 1)",
        ],
    ),
    "no channels": (
        ValueError,
        lambda: gate("simam", C)(torch.zeros(1, 0, 5, 8)),
        ["one channel and one position", "(1, 0, 5, 8)"],
    ),
    "no places": (
        ValueError,
        lambda: gate("simam", C)(torch.zeros(1, 3, 0, 8)),
        ["one channel and one position", "SimAM"],
    ),
    "another type": (
        TypeError,
        lambda: gate("se", C)(a_map().double()),
        ["parameters of torch.float32, x is torch.float64; cast one, as in gate.to(torch.float64)"],
    ),
    "another device": (ValueError, lambda: gate("se", C)(a_map().to("meta")), ["cpu", "meta", "gate.to('meta')"]),
    "a map asked for": (
        ValueError,
        lambda: gate("se", C).attend(a_map(), need=Need(map=True)),
        ["need.map does not exist for SqueezeExcite", "ask for Need(weights=True), or let regard.record keep"],
    ),
    "zero channels": (ValueError, lambda: gate("se", 0), ["channels must be a whole number", "SqueezeExcite", "0"]),
    "half a channel": (TypeError, lambda: gate("eca", 2.5), ["channels must be a whole number", "2.5"]),
    "zero reduction": (ValueError, lambda: CBAM(8, 0), ["reduction must be a whole number", "0"]),
    "four axes of places": (ValueError, lambda: CBAM(8, dims=4), ["dims must be 1, 2 or 3", "CBAM", "4"]),
    "an unknown gate": (ValueError, lambda: gate("simmam", 8), ["unknown gate", "did you mean 'simam'?"]),
    "an unknown option": (
        ValueError,
        lambda: gate("se:reductoin=4", 8),
        ["unknown option of 'se:reductoin=4', 'reductoin'; did you mean 'reduction'?"],
    ),
    "an option without a value": (ValueError, lambda: gate("se:reduction", 8), ["option=value", "reduction=VALUE"]),
    "an option twice": (ValueError, lambda: gate("se:hidden=2:hidden=3", 8), ["gives hidden twice; give it once"]),
    "options of a gate without any": (
        ValueError,
        lambda: gate("gap:reduction=4", 8),
        ["the gate 'gap' takes no options, got 'gap:reduction=4'; leave them out"],
    ),
    "a reduction that is no number": (
        ValueError,
        lambda: gate("se:reduction=x", 8),
        ["reduction of 'se:reduction=x': a whole number of at least 1 is needed, got 'x'; try 4"],
    ),
    "a lam that is no number": (ValueError, lambda: gate("simam:lam=x", 8), ["a number is needed, got 'x'; try 0.1"]),
    "an unknown normalizer": (
        ValueError,
        lambda: gate("se:normalize=softmx", 8),
        ["normalize of 'se:normalize=softmx': unknown normalizer 'softmx'; did you mean 'softmax'?"],
    ),
    "an activation that is no function": (
        TypeError,
        lambda: SqueezeExcite(8, activation="relu"),
        ["activation must be a function of a tensor, got 'relu'; try nn.Identity()"],
    ),
    "a normalizer that is none": (TypeError, lambda: SqueezeExcite(8, normalize="softmax"), ["normalize", "Softmax()"]),
    "an unknown sum": (ValueError, lambda: BAM(8, combine="summ"), ["unknown combine", "did you mean 'sum'?"]),
    "no dilation": (ValueError, lambda: BAM(8, dilation=0), ["dilation must be a whole number"]),
    "no width": (ValueError, lambda: Coordinate(8, min_hidden=0), ["min_hidden must be a whole number"]),
    "a block of something else": (
        TypeError,
        lambda: ExternalBlock(8, nn.Identity()),
        ["attention must be External", "Identity"],
    ),
}


@for_each("name", BAD)
def test_the_sentence_says_what_where_and_the_way_out(name: str) -> None:
    kind, act, words = BAD[name]
    with pytest.raises(kind) as caught:
        act()
    for word in words:
        assert word in str(caught.value), str(caught.value)
