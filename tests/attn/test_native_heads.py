"""A step of MultiHead equals the layer over the whole sequence, natively and not, whatever changes in between."""

import copy
import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard import Learnable
from regard.attn import module_snapshot, native_heads
from regard.attn.kv_cache import KVCache
from regard.attn.layer import Attention
from regard.attn.multihead import MultiHead
from regard.kernels import native_library
from regard.kernels.decoder_step import HEADS_STEP_WITH_PARTS
from regard.layers import Differential, L2QKNorm, LayerQKNorm, OutputGate, RMSQKNorm, WholeRMSQKNorm
from regard.normalizers import WithNullSlot
from regard.positions import AxialSections, DynamicNTKScaling, YaRNScaling
from regard.scores import SoftCap

here = pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))


def steps(heads: MultiHead, x: Tensor, mask: regard.Causal | None = None) -> tuple[Tensor, KVCache]:
    past, outs = None, []
    for t in range(x.shape[1]):
        out, past = heads.step(x[:, t : t + 1].contiguous(), past, mask=mask)
        outs.append(out)
    assert past is not None
    return torch.cat(outs, 1), past


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each step since ran natively."""
    ran: list[bool] = []
    original = native_heads.step

    def step(*arguments: object) -> object:
        result = original(*arguments)  # type: ignore[arg-type]
        ran.append(result is not None)
        return result

    monkeypatch.setattr(native_heads, "step", step)
    return ran


@here
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("batch", "width", "heads", "kv_heads"), [(1, 64, 4, 4), (5, 21, 3, 1), (6, 20, 4, 2), (37, 14, 2, 2)]
)
def test_steps_equal_the_whole_sequence(
    batch: int,
    width: int,
    heads: int,
    kv_heads: int,
    dtype: torch.dtype,
    level: int,
    monkeypatch: pytest.MonkeyPatch,
    native: list[bool],
) -> None:
    monkeypatch.setattr(native_library, "LEVEL", level)
    layer = MultiHead(width, heads, kv_heads=kv_heads).to(dtype).eval()
    x = torch.randn(batch, 19, width, dtype=dtype)
    with torch.no_grad():
        got, past = steps(layer, x, regard.Causal())
        torch.testing.assert_close(got, layer(x, mask=regard.Causal()), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(past.keys, layer.project_kv(x).keys, rtol=1e-5, atol=1e-5)
    assert native == [True] * 19


parts_here = pytest.mark.skipif(
    not native_library.has_kernel(HEADS_STEP_WITH_PARTS), reason="the library has no kernel for parts of heads"
)
PARTS: dict[str, Callable[[int, int, int], dict[str, object]]] = {
    "rms": lambda dim, heads, d: {"qk_norm": RMSQKNorm(d)},
    "rms, offset": lambda dim, heads, d: {"qk_norm": RMSQKNorm(d, offset=1.0)},
    "whole rms": lambda dim, heads, d: {"qk_norm": WholeRMSQKNorm(heads * d, heads * d // 2)},
    "layer norm": lambda dim, heads, d: {"qk_norm": LayerQKNorm(d)},
    "layer norm, no bias": lambda dim, heads, d: {"qk_norm": LayerQKNorm(d, bias=False)},
    "l2": lambda dim, heads, d: {"qk_norm": L2QKNorm(3.0)},
    "gate": lambda dim, heads, d: {"gate": OutputGate(dim, heads)},
    "channel gate": lambda dim, heads, d: {"gate": OutputGate(dim, heads, d, bias=True)},
    "cap": lambda dim, heads, d: {"attention": Attention(SoftCap(0.3))},
    "sink": lambda dim, heads, d: {"attention": Attention(normalize=WithNullSlot(score=Learnable(0.0, heads=heads)))},
    "one slot": lambda dim, heads, d: {
        "attention": Attention(SoftCap(0.5, regard.Dot(0.7)), normalize=WithNullSlot(regard.Softmax(0.6), score=0.4))
    },
    "difference": lambda dim, heads, d: {"difference": Differential(d, layer=3)},
    "difference, gate": lambda dim, heads, d: {
        "difference": Differential(d),
        "gate": OutputGate(dim, heads // 2, 2 * d),
        "attention": Attention(SoftCap(0.3), normalize=WithNullSlot(score=Learnable(0.0, heads=heads))),
    },
    "rotary": lambda dim, heads, d: {"rotate": regard.Rotary(d + d % 2)},
    "neighbours": lambda dim, heads, d: {"rotate": regard.Rotary(d + d % 2, pairs="neighbours")},
    "part of a head": lambda dim, heads, d: {"rotate": regard.Rotary(d + d % 2, rotary_dim=4)},
    "yarn": lambda dim, heads, d: {"rotate": regard.Rotary(d + d % 2, scaling=YaRNScaling(4.0, 8))},
    "grid": lambda dim, heads, d: {
        "rotate": regard.Rotary(d + d % 2, rotary_dim=4, axes=AxialSections((1, 1), (5, 4)))
    },
    "all": lambda dim, heads, d: {
        "rotate": regard.Rotary(d + d % 2),
        "qk_norm": RMSQKNorm(d + d % 2),
        "gate": OutputGate(dim, heads, d + d % 2),
        "attention": Attention(SoftCap(0.3), normalize=WithNullSlot(score=Learnable(0.0))),
    },
}


@parts_here
@for_each("name", PARTS)
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("batch", "heads", "d"), [(1, 4, 16), (9, 8, 5)])
def test_steps_with_parts_equal_the_whole_sequence(
    name: str,
    batch: int,
    heads: int,
    d: int,
    dtype: torch.dtype,
    level: int,
    monkeypatch: pytest.MonkeyPatch,
    native: list[bool],
) -> None:
    monkeypatch.setattr(native_library, "LEVEL", level)
    parts = PARTS[name](21, heads, d)
    d += d % 2 if "rotate" in parts else 0  # rotations need pairs
    layer = MultiHead(21, heads, kv_heads=heads // 2, head_dim=d, **parts).to(dtype).eval()  # type: ignore[arg-type]
    native.clear()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.3)
        x = torch.randn(batch, 19, 21, dtype=dtype)
        got, past = steps(layer, x, regard.Causal())
        torch.testing.assert_close(got, layer(x, mask=regard.Causal()), rtol=2e-5, atol=2e-5)
        torch.testing.assert_close(past.keys, layer.project_kv(x).keys, rtol=1e-5, atol=1e-5)
    assert native == [True] * 19


PART_CHANGES: dict[str, Callable[[MultiHead], object]] = {
    "gain": lambda heads: setattr(heads.qk_norm, "query_gain", nn.Parameter(torch.full((4,), 3.0))),
    "eps": lambda heads: setattr(heads.qk_norm, "eps", 9.0),
    "cap": lambda heads: setattr(heads.attention.score, "cap", 0.01),
    "sink": lambda heads: setattr(heads.attention.normalize, "score", 7.0),
    "sinks": lambda heads: nn.init.constant_(heads.attention.normalize.score, 5.0),
    "gate": lambda heads: setattr(heads.gate, "map", nn.Linear(12, 3)),
    "no gate": lambda heads: setattr(heads, "gate", None),
    "rotation": lambda heads: setattr(heads, "rotate", regard.Rotary(4, pairs="neighbours")),
    "another norm": lambda heads: setattr(heads, "qk_norm", LayerQKNorm(4)),
}


@for_each("change", PART_CHANGES)
def test_a_plan_with_parts_is_never_stale(change: str) -> None:
    sink = WithNullSlot(score=Learnable(0.0, heads=3))
    attention = Attention(SoftCap(0.5), normalize=sink)
    heads = MultiHead(12, 3, qk_norm=RMSQKNorm(4), gate=OutputGate(12, 3), attention=attention).eval()
    if change == "sink":
        del sink.score
    x = torch.randn(2, 5, 12)
    with torch.no_grad():
        if change != "sink":
            steps(heads, x)
        PART_CHANGES[change](heads)
        torch.testing.assert_close(steps(heads, x)[0], heads(x, mask=regard.Causal()), rtol=1e-5, atol=1e-5)


DIFFERENCE_CHANGES: dict[str, Callable[[Differential], object]] = {
    "in place": lambda difference: difference.query_1.data.add_(1.0),
    "parameter": lambda difference: setattr(difference, "key_2", nn.Parameter(torch.randn(3))),
    "layer": lambda difference: setattr(difference, "layer", 7),
    "norm": lambda difference: setattr(difference, "norm", nn.Tanh()),
    "eps": lambda difference: setattr(difference.norm, "eps", 0.5),
    "subtract": lambda difference: setattr(difference, "subtract", lambda t: t.chunk(2, dim=-3)[0]),
}


@for_each("change", DIFFERENCE_CHANGES)
def test_a_plan_with_a_difference_is_never_stale(change: str) -> None:
    heads, x = MultiHead(12, 4, difference=Differential(3)).eval(), torch.randn(2, 5, 12)
    with torch.no_grad():
        steps(heads, x)
        DIFFERENCE_CHANGES[change](heads.difference)
        torch.testing.assert_close(steps(heads, x)[0], heads(x, mask=regard.Causal()), rtol=1e-5, atol=1e-5)


@parts_here
def test_parts_of_other_sizes_and_classes_are_not_native(native: list[bool]) -> None:
    class Halved(RMSQKNorm):
        def queries(self, q: Tensor) -> Tensor:
            return super().queries(q) / 2

    x = torch.randn(2, 4, 12)
    paired = MultiHead(12, 4, difference=Differential(3)).eval()
    paired.difference.norm = nn.RMSNorm(6)
    with torch.no_grad():
        for heads in (MultiHead(12, 3, qk_norm=Halved(4)).eval(), paired):
            torch.testing.assert_close(steps(heads, x)[0], heads(x, mask=regard.Causal()), rtol=1e-5, atol=1e-5)
        assert "differences and gates of this library (forgetting is more)" in paired.explain_step(
            x[:, :1].contiguous()
        )
        short = MultiHead(12, 3, qk_norm=RMSQKNorm(4)).eval()
        short.qk_norm.key_gain = nn.Parameter(torch.ones(2))
        with pytest.raises(RuntimeError, match="normalized_shape"):
            short.step(x[:, :1].contiguous())
        # a null slot without weight
        heads = MultiHead(12, 3, attention=Attention(normalize=WithNullSlot(score=-torch.inf))).eval()
        torch.testing.assert_close(steps(heads, x)[0], heads(x, mask=regard.Causal()), rtol=1e-5, atol=1e-5)
    assert not any(native[:9])


@parts_here
def test_rotations_whose_frequencies_follow_the_length(native: list[bool]) -> None:
    """Each step rotates by the length so far, as the layer does with the same cache; positions are not native."""
    rotate = regard.Rotary(4, scaling=DynamicNTKScaling(2.0, 3))
    heads, x = MultiHead(12, 3, rotate=rotate).eval(), torch.randn(2, 6, 12)
    with torch.no_grad():
        _, past = steps(heads, x[:, :5])
        got, longer = heads.step(x[:, 5:].contiguous(), past)
        assert all(native)
        cache = heads.project_kv(x[:, 5:], past=past)
        torch.testing.assert_close(longer.keys, cache.keys)
        torch.testing.assert_close(got, heads(x[:, 5:], cache), rtol=1e-5, atol=1e-5)
        places = torch.arange(1), torch.arange(1)
        text = heads.explain_step(x[:, :1].contiguous(), positions=places)
        assert "positions are given, and the heads rotate" in text
        first, _ = heads.step(x[:, :1].contiguous(), positions=places)
        assert native[-1] is False
        torch.testing.assert_close(first, heads(x[:, :1]), rtol=1e-5, atol=1e-5)


def test_a_library_without_the_kernel_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    heads, x = MultiHead(12, 3, qk_norm=RMSQKNorm(4)).eval(), torch.randn(2, 1, 12)
    monkeypatch.setattr(native_heads, "has_kernel", lambda name: False)
    with torch.no_grad():
        assert "was built without its kernel for norms" in heads.explain_step(x)
        assert native_heads.step(heads, x, None, None, None) is None


def halved(heads: MultiHead) -> dict[str, Tensor]:
    return {name: value * 0.5 for name, value in heads.state_dict().items()}


CHANGES: dict[str, Callable[[MultiHead], object]] = {
    "data": lambda heads: heads.key.weight.data.mul_(-2.0),
    "load": lambda heads: heads.load_state_dict(halved(heads)),
    "assign": lambda heads: heads.load_state_dict(halved(heads), assign=True),
    "linear": lambda heads: setattr(heads, "out", nn.Linear(12, 12)),
    "parameter": lambda heads: setattr(heads.value, "weight", nn.Parameter(torch.randn(12, 12))),
    "transposed": lambda heads: setattr(heads.query.weight, "data", heads.query.weight.data.t()),
    "scale": lambda heads: setattr(heads.attention.score, "scale", 3.0),
    "window": lambda heads: setattr(heads.attention, "mask", regard.Window(1, 0)),
    "normalize": lambda heads: setattr(heads.attention, "normalize", regard.Sparsemax()),
    "forward": lambda heads: setattr(heads.out, "forward", lambda x: x * 2.0),
}


@for_each("change", CHANGES)
def test_a_plan_is_never_stale(change: str) -> None:
    heads = MultiHead(12, 3).eval()
    x = torch.randn(2, 5, 12)
    with torch.no_grad():
        steps(heads, x)
        CHANGES[change](heads)
        torch.testing.assert_close(steps(heads, x)[0], heads(x, mask=regard.Causal()), rtol=1e-5, atol=1e-5)


def test_another_dtype() -> None:
    heads, x = MultiHead(12, 3).eval(), torch.randn(2, 5, 12)
    with torch.no_grad():
        steps(heads, x)
        heads.double()
        torch.testing.assert_close(steps(heads, x.double())[0], heads(x.double(), mask=regard.Causal()))
        heads.half()
        with pytest.raises(TypeError, match="parameters of torch.float16"):
            heads.step(x[:, :1])


def test_hooks_fire() -> None:
    heads, x, seen = MultiHead(12, 3).eval(), torch.randn(2, 1, 12), []
    with torch.no_grad():
        heads.step(x)
        handle = heads.value.register_forward_hook(lambda *_: seen.append("value"))
        heads.step(x)
        handle.remove()
        handle = heads.register_forward_pre_hook(lambda *_: seen.append("heads"))
        heads.step(x)
        handle.remove()
        handle = nn.modules.module.register_module_forward_hook(lambda *_: seen.append("all"))
        heads.step(x)
        handle.remove()
    assert seen[:2] == ["value", "heads"]
    assert "all" in seen[2:]


def test_gradients_are_kept() -> None:
    heads, x = MultiHead(12, 3).eval(), torch.randn(2, 4, 12, requires_grad=True)
    out, _ = steps(heads, x)
    got = torch.autograd.grad(out.square().sum(), [x, *heads.parameters()])
    want = torch.autograd.grad(heads(x, mask=regard.Causal()).square().sum(), [x, *heads.parameters()])
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_dropout_is_not_lost() -> None:
    heads, x = MultiHead(12, 3, dropout=0.5), torch.randn(2, 9, 12)
    with torch.no_grad():
        heads.eval()
        steps(heads, x)
        heads.train()
        assert not torch.equal(steps(heads, x)[0], steps(heads, x)[0])


def test_masks_positions_and_rotations_are_not_lost(native: list[bool]) -> None:
    x = torch.randn(2, 7, 12)
    with torch.no_grad():
        heads = MultiHead(12, 3).eval()
        got, _ = steps(heads, x, regard.Window(2, 0))
        torch.testing.assert_close(got, heads(x, mask=regard.Window(2, 0)))
        turned = MultiHead(12, 3, rotate=regard.Rotary(4)).eval()
        torch.testing.assert_close(steps(turned, x)[0], turned(x, mask=regard.Causal()))
        tilted = MultiHead(12, 3, attention=regard.Attention(bias=regard.ALiBi(3))).eval()
        torch.testing.assert_close(steps(tilted, x)[0], tilted(x, mask=regard.Causal()))
        _, past = heads.step(x[:, :1])
        positions = torch.tensor([4]), torch.tensor([5, 4])
        hidden, _ = heads.step(x[:, 1:2], past, mask=regard.Causal(), positions=positions)
        cache = heads.project_kv(x[:, 1:2], past=past)
        torch.testing.assert_close(hidden, heads(x[:, 1:2], cache, mask=regard.Causal(), positions=positions))
    assert all(native[7:14]) == native_library.has_kernel(HEADS_STEP_WITH_PARTS)
    assert not any(native[14:21])


@here
def test_nan_reaches_the_rows_that_see_it() -> None:
    heads, x = MultiHead(12, 3).eval(), torch.randn(2, 3, 12)
    x[1, 1] = torch.nan
    with torch.no_grad():
        got, _ = steps(heads, x, regard.Causal())
    assert torch.equal(got.isnan().all(-1), torch.tensor([[False, False, False], [False, True, True]]))


@here
def test_two_continuations_share_a_past() -> None:
    heads, x = MultiHead(12, 3).eval(), torch.randn(2, 6, 12)
    with torch.no_grad():
        _, past = steps(heads, x[:, :4])
        keys = past.keys.clone()
        first, _ = heads.step(x[:, 4:5], past)
        second, longer = heads.step(x[:, 5:6], past)
        again, _ = heads.step(x[:, 4:5], past)
    assert torch.equal(past.keys, keys)
    assert len(longer) == 5
    torch.testing.assert_close(first, again)
    assert not torch.equal(first, second)


def test_modes_of_torch(native: list[bool]) -> None:
    heads, x = MultiHead(12, 3).eval(), torch.randn(2, 1, 12)
    with torch.no_grad():
        want, _ = heads.step(x)
        native.clear()
        with regard.record(heads) as recording:
            torch.testing.assert_close(heads.step(x)[0], want)
        assert len(recording) == 1
        mapped = torch.func.vmap(lambda row: heads.step(row)[0])(x.unsqueeze(1))
        torch.testing.assert_close(mapped.squeeze(1), want)
        compiled = torch.compile(lambda row: heads.step(row)[0], backend="eager")
        torch.testing.assert_close(compiled(x), want)
        with torch.autocast("cpu", torch.bfloat16):
            assert heads.step(x)[0].dtype == torch.bfloat16
    assert not any(native)


def test_a_plan_is_no_part_of_the_module() -> None:
    heads, x = MultiHead(12, 3).eval(), torch.randn(2, 2, 12)
    names = set(heads.__dict__), list(heads.state_dict())
    with torch.no_grad():
        want, _ = steps(heads, x)
        torch.testing.assert_close(steps(copy.deepcopy(heads), x)[0], want)
    assert (set(heads.__dict__), list(heads.state_dict())) == names
    gone = weakref.ref(heads)
    del heads
    gc.collect()
    assert gone() is None


def test_derived_values_are_kept_until_a_change() -> None:
    module, made = nn.Sequential(nn.Linear(3, 5), nn.ReLU()), []

    def derive(root: nn.Module) -> int:
        made.append(len(made))
        return made[-1]

    def value() -> int:
        return module_snapshot.derived((module,), derive)

    assert [value(), value()] == [0, 0]
    with torch.no_grad():
        module[0].weight.add_(1.0)
    assert value() == 0
    for n, change in enumerate(
        (
            lambda: module.train(not module.training),
            lambda: module[0].register_forward_hook(lambda *_: None),
            lambda: setattr(module[0], "in_features", 4),
            lambda: module.append(nn.Tanh()),
            lambda: module.to(torch.float64),
            lambda: nn.utils.parametrize.register_parametrization(module[0], "bias", nn.Identity()),
        ),
        1,
    ):
        change()
        assert [value(), value()] == [n, n]


def test_modules_that_do_not_change_are_compared_once() -> None:
    module, made = nn.Sequential(nn.Linear(3, 5), nn.ReLU()), []

    def value() -> int:
        return module_snapshot.derived((module,), lambda _: made.append(0) or len(made))

    with module_snapshot.unchanged_modules():
        assert value() == 1
        module.train(not module.training)
        assert value() == 1
        # a native call would read the memory that the parameter had before
        module[0].weight.data = module[0].weight.data.clone()
        assert [value(), value()] == [2, 2]
    module.train(not module.training)
    assert [value(), value()] == [3, 3]
    with module_snapshot.unchanged_modules():
        module.train(not module.training)
        assert [value(), value()] == [4, 4]


@pytest.mark.parametrize("width", [4, 16])
def test_tokens_of_another_width_are_refused(width: int) -> None:
    """A native call would read beyond the weights."""
    with torch.no_grad(), pytest.raises(ValueError, match=f"q must be 8 wide for MultiHead, got \\(1, 1, {width}\\)"):
        MultiHead(8, 2).eval().step(torch.randn(1, 1, width))


SMALLER: dict[str, Callable[[MultiHead], object]] = {
    "narrow": lambda heads: setattr(heads.query.weight, "data", heads.query.weight.data[:5]),
    "small": lambda heads: setattr(heads.value, "weight", nn.Parameter(torch.randn(5, 8))),
    "short bias": lambda heads: setattr(heads.key, "bias", nn.Parameter(torch.randn(3))),
}


@for_each("change", SMALLER)
def test_parameters_of_another_shape_are_never_read(change: str) -> None:
    heads, x = MultiHead(8, 2).eval(), torch.randn(1, 1, 8)
    with torch.no_grad():
        heads.step(x)
        SMALLER[change](heads)
        with pytest.raises(RuntimeError, match="must match|cannot be multiplied|invalid for input"):
            heads.step(x)


def test_other_parameters_by_functional_call(native: list[bool]) -> None:
    heads, x = MultiHead(8, 2).eval(), torch.randn(2, 1, 8)

    class OneStep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = heads

        def forward(self, x: Tensor) -> Tensor:
            return self.heads.step(x)[0]

    with torch.no_grad():
        before, _ = heads.step(x)
        others = {f"heads.{name}": -2 * value for name, value in heads.named_parameters()}
        changed = torch.func.functional_call(OneStep(), others, (x,))
        after, _ = heads.step(x)
        heads.load_state_dict({name.removeprefix("heads."): value for name, value in others.items()})
        torch.testing.assert_close(changed, heads(x), rtol=1e-5, atol=1e-6)
    assert torch.equal(before, after)
    assert not torch.allclose(before, changed)
    assert native[1] is False
