"""The second call of a signature follows the plan of the first: the same numbers, the same errors, no checks again."""

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
