"""padded: texts with an interval of keys each equal the reference, and everything else is refused by name."""

import pytest
import torch
from tests.attn.backends.cases import Sizes, close, run, tensors
from tests.for_each import for_each

import regard
from regard import Causal, Lengths, Mask, Window
from regard.kernels import native_library

pytestmark = pytest.mark.skipif(native_library.library() is None, reason="no native library")

LENGTHS = torch.tensor([7, 0, 3])
MASKS: dict[str, Mask] = {
    "behind": Lengths(LENGTHS),
    "before": ~Lengths(LENGTHS),
    "both sides": Lengths(LENGTHS) & ~Lengths(torch.tensor([2, 5, 3])),
    "causal": Causal() & ~Lengths(LENGTHS),
    "one length": Lengths(torch.tensor([4], dtype=torch.int32)),
    "too long": Causal() & (Lengths(torch.tensor([99, 1, 2])) & Causal()),
}


@for_each("name", MASKS)
def test_equals_the_reference(name: str) -> None:
    sizes = Sizes(b=3, q=7, k=7)
    q, k, v = tensors(sizes)
    want, slopes = run(q, k, v, {"mask": MASKS[name]}, "eager")
    got, again = run(q, k, v, {"mask": MASKS[name]}, "padded")
    close(got, want, "out")
    for key, slope in slopes.items():
        close(again[key], slope, f"gradient of {key}")


def test_padding_of_short_texts_runs_on_it() -> None:
    q = torch.randn(3, 2, 7, 4)
    assert "padded   runs: a native kernel over the keys of each sample\n" in regard.explain(
        q, q, mask=Lengths(LENGTHS)
    )
    causal = regard.explain(q, q, mask=Causal() & Lengths(LENGTHS))
    assert "padded   runs: a native kernel over the keys of each sample, up to the query\n" in causal


REFUSED = {
    "it takes causality and lengths of samples, not Window(2, 0)": {"mask": Window(2)},
    "its kernel has no bias": {"mask": Lengths(LENGTHS), "bias": regard.ALiBi(2)},
    "its kernel has no dropout": {"mask": Lengths(LENGTHS), "dropout": 0.5},
    "positions are given, and it counts queries as the last of the keys": {"positions": (torch.arange(7),) * 2},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_other_calls_are_refused(reason: str) -> None:
    q = torch.randn(3, 2, 7, 4)
    assert f"padded   cannot: {reason}\n" in regard.explain(q, q, **REFUSED[reason])


def test_other_calls_come_to_other_kernels() -> None:
    q, long = torch.randn(3, 2, 7, 4), torch.randn(1, 1, 513, 4)
    assert "padded   could, but there is no padding" in regard.explain(q, q, mask=Causal())
    assert "padded   could, but it is made for at most 512 keys" in regard.explain(long, long, mask=Lengths([9]))
    flat, half = torch.randn(3, 7, 4), q.half()
    assert "padded   cannot: it takes samples and heads" in regard.explain(flat, flat, mask=Lengths(LENGTHS))
    assert "padded   cannot: the native kernels take float32" in regard.explain(half, half, mask=Lengths(LENGTHS))


def test_without_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "_library_or_reason", lambda: "no native kernels")
    q = torch.randn(3, 2, 7, 4)
    assert "padded   cannot: no native kernels\n" in regard.explain(q, q, mask=Lengths(LENGTHS))


def test_lengths_of_a_small_integer_type() -> None:
    q, k = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 300, 7)
    mask = Lengths(torch.tensor([200, 100], dtype=torch.uint8))
    outs = [regard.attention(q, k, mask=mask, backend=backend) for backend in ("padded", "eager")]
    torch.testing.assert_close(outs[0], outs[1], rtol=1e-4, atol=1e-5)
