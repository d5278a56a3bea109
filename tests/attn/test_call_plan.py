"""The second call of a signature follows the plan of the first: the same numbers, the same errors, no checks again."""

import functools
import random
from contextlib import nullcontext
from unittest import mock

import pytest
import torch
from tests.for_each import for_each

import regard
from regard.attn import call_plan

CALLS = {
    "lengths": lambda: {"mask": regard.Lengths([7, 4])},
    "boolean": lambda: {"mask": torch.rand(2, 1, 5, 7) < 0.6},
    "both": lambda: {"mask": regard.Window(3, 0) & regard.Lengths(torch.tensor([7, 4]))},
    "sparsemax": lambda: {"normalize": regard.Sparsemax(), "mask": regard.Causal()},
    "additive": lambda: {"score": regard.Additive(3, 3, 5), "mask": regard.Lengths([7, 4])},
    "general": lambda: {"score": regard.Bilinear(3, 3), "normalize": regard.Sparsemax()},
    "alibi": lambda: {"bias": regard.ALiBi(4)},
    "shared heads": lambda: {"normalize": regard.Entmax(1.5)},
    "forced": lambda: {"backend": "eager", "mask": regard.Lengths([7, 4])},
}


@for_each("name", CALLS)
@for_each("grad", [True, False])
def test_a_planned_call_is_the_same_call(name: str, grad: bool) -> None:
    torch.manual_seed(0)
    terms, heads = CALLS[name](), 2 if name == "shared heads" else 4
    first, second = ([torch.randn(2, h, n, 3) for h, n in ((4, 5), (heads, 7), (heads, 7))] for _ in range(2))
    second[1][0, 0, -1] = torch.nan  # which some masks hide
    for t in (*first, *second):
        t.requires_grad_(grad)
    with mock.patch.dict(call_plan._PLANS, clear=True), torch.set_grad_enabled(grad):
        want = regard.attention(*second, **terms)
        call_plan._PLANS.clear()
        regard.attention(*first, **terms)
        # the parameters of a score decide about gradients
        is_planned = not (grad and "score" in terms)
        with mock.patch.object(call_plan, "build_call", None) if is_planned else nullcontext():
            torch.testing.assert_close(regard.attention(*second, **terms), want, equal_nan=True)


def test_what_is_no_part_of_the_plan_is_read_at_every_call() -> None:
    q, softmax, mask = torch.randn(2, 4, 5, 3), regard.Softmax(), regard.Lengths(torch.tensor([5, 3]))
    warm = regard.attention(q, q, normalize=softmax, mask=mask)
    softmax.temperature = 0.1
    cold = regard.attention(q, q, normalize=softmax, mask=mask)
    torch.testing.assert_close(cold, regard.attention(q, q, normalize=regard.Softmax(0.1), mask=mask, backend="eager"))
    assert not torch.allclose(cold, warm)
    mask.lengths.fill_(1)
    torch.testing.assert_close(regard.attention(q, q, mask=mask), q[:, :, :1].expand(-1, -1, 5, -1))
    for bad in (q[..., :2], q.double(), q[:1, :3]):
        with pytest.raises((ValueError, TypeError)):
            regard.attention(q, bad, normalize=softmax, mask=mask)


class NotTheFirst(regard.Lengths):
    """Lengths without the first key."""

    def dense(self, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return super().dense(i, j) & (j.unsqueeze(-2) > 0)


def test_a_subclass_of_a_mask_follows_no_plan_of_its_parent() -> None:
    q, k = torch.randn(2, 4, 5, 3), torch.randn(2, 4, 7, 3)
    for wrap in (lambda mask: mask, lambda mask: mask & regard.Causal()):
        regard.attention(q, k, mask=wrap(regard.Lengths(torch.tensor([7, 4]))))
        mask = wrap(NotTheFirst(torch.tensor([7, 4])))
        torch.testing.assert_close(
            regard.attention(q, k, mask=mask), regard.attention(q, k, mask=mask, backend="eager")
        )


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_inputs_that_have_no_signature_are_refused_by_the_checks() -> None:
    q, mask = torch.randn(2, 4, 5, 3), regard.Lengths([5, 3])
    with pytest.raises(TypeError, match="k must be a tensor, got NoneType"):
        regard.attention(q, None, mask=mask)  # type: ignore[arg-type]
    nested = torch.nested.nested_tensor([q[0], q[1, :, :4]])
    with pytest.raises(TypeError, match="must be a padded tensor, got a nested one"):
        regard.attention(nested, nested, mask=mask)


@torch.no_grad()
def test_keys_that_another_score_projected_are_refused_with_a_plan_too() -> None:
    q, layers = torch.randn(2, 4, 5, 3), [regard.Attention(regard.Additive(3, 3, hidden)) for hidden in (6, 7)]
    cache = layers[0].project_kv(q)
    layers[0](q, cache)
    with pytest.raises(ValueError, match=r"cached keys \(2, 4, 5, 6\) are not as wide as the queries \(2, 4, 5, 7\)"):
        layers[1](q, cache)


def test_a_plan_does_not_wait_for_the_values_of_a_device() -> None:
    q, mask = torch.randn(2, 4, 5, 3), regard.Lengths(torch.tensor([5, 3]))
    want = regard.attention(q, regard.KVCache(q, q), mask=mask)
    with (
        mock.patch.object(call_plan, "values_are_readable", return_value=False),
        mock.patch.object(regard.KVCache, "finite", property(lambda cache: pytest.fail("it reads the cache"))),
    ):
        torch.testing.assert_close(regard.attention(q, regard.KVCache(q, q), mask=mask), want)


def sparse(s: torch.Tensor) -> torch.Tensor:
    """Sparsemax by sorting, as it is printed (Martins and Astudillo 2016, algorithm 1)."""
    z = s.sort(-1, descending=True).values
    above = z.cumsum(-1) - 1
    size = (z * torch.arange(1, s.shape[-1] + 1) > above).sum(-1, keepdim=True)
    return (s - above.gather(-1, size - 1) / size).clamp_min(0)


def plain_equation(layer: regard.Attention, qkv: list[torch.Tensor], lengths: torch.Tensor | None) -> torch.Tensor:
    """The layer in float64; a row that may attend to a number that is none is NaN, and one without a key is zero."""
    q, k, v = (t.detach().double() for t in qkv)
    n, m = q.shape[-2], k.shape[-2]
    i, j = torch.arange(m - n, m)[:, None], torch.arange(m)
    allowed = torch.ones(len(q), 1, n, m, dtype=torch.bool)
    if layer.mask is not None:
        allowed &= layer.mask.dense(torch.arange(m - n, m), j)
    if lengths is not None:
        allowed &= j < lengths[:, None, None, None]
    broken = ~(torch.isfinite(k).all(-1) & torch.isfinite(v).all(-1))[..., None, :]
    rows = (broken & allowed).any(-1, keepdim=True)
    k, v = torch.nan_to_num(k, 0, 0, 0), torch.nan_to_num(v, 0, 0, 0)
    s = q @ k.transpose(-1, -2) * layer.score.scale_of(q.shape[-1])
    if layer.bias is not None:
        s = s - layer.bias.slopes.double()[:, None, None] * (i - j).abs()
    if isinstance(layer.normalize, regard.Softmax):
        weights = torch.softmax((s / layer.normalize.temperature).masked_fill(~allowed, -1e300), -1)
    else:
        weights = sparse(s.masked_fill(~allowed, -1e6))
    return ((weights * allowed) @ v).masked_fill(rows, torch.nan)


@for_each("seed", range(4))
def test_random_calls_with_changes_between_them(seed: int) -> None:
    """Whatever changed since the call before, in place or not: the numbers of the equation, as without plans."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    pool = [[torch.randn(2, 4, n, 3) for n in (5, m, m)] for m in (5, 7)]
    lengths = regard.Lengths(torch.tensor([5, 3]))
    layers = [
        regard.Attention(mask=mask, bias=bias, normalize=normalize).eval()
        for mask in (None, regard.Causal(), regard.Window(2, 1))
        for bias, normalize in ((None, None), (regard.ALiBi(4), None), (None, regard.Sparsemax()))
    ]
    kept = 0
    with mock.patch.dict(call_plan._PLANS, clear=True):
        for _ in range(150):
            layer, qkv = draw.choice(layers), draw.choice(pool)
            change, t = draw.randrange(24), draw.choice(qkv)
            with torch.no_grad():
                if change == 0:
                    lengths.lengths.random_(0, 8)
                elif change == 1:
                    lengths = regard.Lengths([draw.randint(0, 5), 5])
                elif change == 2:
                    layer.score.scale = draw.choice([None, 0.5, -1.0])
                elif change == 3 and isinstance(layer.normalize, regard.Softmax):
                    layer.normalize.temperature = draw.choice([1.0, 0.5])
                elif change == 4 and layer.bias is not None:
                    layer.bias.slopes.mul_(-0.9)
                elif change == 5 and layer.bias is not None:
                    layer.bias.slopes = torch.rand(4)
                elif change == 6:
                    t[0, 0, -1] = draw.choice([torch.nan, torch.inf, 0.5])
                elif change == 7:
                    t.requires_grad_(not t.requires_grad)
                elif change == 8:
                    t.copy_(torch.randn(t.shape))
                elif change == 9:
                    dtype = draw.choice([torch.float32, torch.float64])
                    qkv[:] = [t.detach().to(dtype) for t in qkv]
                elif change == 10:
                    qkv[:] = [t.detach().transpose(1, 2).contiguous().transpose(1, 2) for t in qkv]
                elif change == 11 and layer.mask is not None:
                    layer.mask = draw.choice([regard.Causal(), regard.Window(1, 0), regard.Window(1, None)])
                elif change == 12 and layer.bias is None:
                    layer.normalize = draw.choice([regard.Softmax(), regard.Sparsemax()])
            qkv[0].data.nan_to_num_(0.5, 0.5, 0.5)  # rows of broken queries have a test of their own
            mask = draw.choice([None, lengths])
            mode = draw.choice([torch.no_grad, torch.enable_grad, torch.inference_mode])
            call = functools.partial(layer, *qkv, mask=mask)
            with mode():
                got = call()
                plans = call_plan._PLANS.copy()
                kept += sum(plan.kept is not None for plan in plans.values())
                call_plan._PLANS.clear()
                fresh = call()
                call_plan._PLANS.update(plans)
            assert torch.equal(got.nan_to_num(7.0), fresh.nan_to_num(7.0))
            assert got.requires_grad == fresh.requires_grad
            if any(t.isinf().any() for t in qkv):  # what inf gives without a mask is left to torch
                continue
            want = plain_equation(layer, qkv, None if mask is None else mask.lengths)
            torch.testing.assert_close(got.detach().double(), want, rtol=1e-4, atol=1e-5, equal_nan=True)
    assert kept > 100


def test_hooks_of_a_bias_are_called() -> None:
    q, layer, seen = torch.randn(2, 4, 5, 3), regard.Attention(bias=regard.ALiBi(4)), []
    want = layer(q)
    layer(q)
    hook = layer.bias.register_forward_hook(lambda module, args, out: seen.append(1) or out * 0)
    torch.testing.assert_close(layer(q), regard.attention(q, q))
    hook.remove()
    assert seen
    assert torch.equal(layer(q), want)
    with regard.record(layer) as recording:
        layer(q)
    assert len(recording) == 1
