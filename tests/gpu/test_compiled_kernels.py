"""The Triton kernels compiled for GPUs that are not there: no spills, little shared memory, the instructions."""

from collections.abc import Callable
from importlib.metadata import version

import pytest
import torch
from benchmarks.gpu import compiled, compiled_page
from benchmarks.gpu.compiled import Facts, Variant

from regard.kernels.triton.configs import TARGETS

pytestmark = pytest.mark.skipif(not compiled.is_installed(), reason="triton is not installed")

FACTS = Facts(registers=100, spilled=0, shared=1 << 14, products=8, reciprocals=4, exact_divisions=0, local_loads=0)
FORWARD = Variant("additive.forward", "float32", 64)


def listed() -> str:
    return compiled_page.PAGE.read_text(encoding="utf-8")


def check(variant: Variant, **options: bool) -> None:
    """Compiles a variant for every target; one with a mask and entmax 1.5 is a row of the page."""
    found = {target: compiled.facts(variant, target, **options) for target in TARGETS}
    wrong = [line for target, what in found.items() for line in compiled_page.violations(variant, target, what)]
    assert not wrong
    if not options and f"triton {version('triton')}." in listed():
        row = compiled_page.resource_row(variant, found)
        assert row in listed(), f"write docs/gpu-kernels.md anew by `make gpu-report`; it lacks {row}"


def test_a_kernel_is_compiled_as_the_page_says() -> None:
    check(Variant("additive.backward_keys", "float32", 32))


@pytest.mark.whole
@pytest.mark.parametrize("variant", list(compiled.variants()), ids=lambda v: f"{v.kernel}-{v.kind}-{v.width}")
def test_every_kernel_is_compiled_as_the_page_says(variant: Variant) -> None:
    check(variant)
    for has_mask, squared in [(False, True), (True, False), (False, False)] if variant.width else []:
        check(variant, has_mask=has_mask, squared=squared)


def test_the_page_has_every_kernel_that_is_shipped() -> None:
    page = listed()
    for variant in compiled.variants():
        start = compiled_page.resource_row(variant, {})
        assert start.removesuffix(" |") in page, f"write docs/gpu-kernels.md anew by `make gpu-report`; no row {start}"
    rooflines = [
        line for line in page.splitlines() if line.endswith(("functions |", "cores |", "memory |", "operations |"))
    ]
    assert len(rooflines) >= 15


def test_faults_of_the_code_have_names() -> None:
    def faults(variant: Variant = FORWARD, **changed: int) -> str:
        return " ".join(compiled_page.violations(variant, "sm_80", FACTS._replace(**changed)))

    assert faults() == ""
    assert "width 64, on sm_80: it spills 8" in faults(spilled=8)
    assert "needs 102400 bytes of shared memory" in faults(shared=100 * 1024)
    assert "has 1 exact divisions" in faults(exact_divisions=1)
    assert "multiplies without tensor cores" in faults(products=0)
    assert faults(Variant("additive.backward_keys", "float32", 64), products=0) == ""
    assert "no fast reciprocal" in faults(reciprocals=0)


def test_operators_of_compiled_code_refuse_a_cpu_when_they_run() -> None:
    from regard.kernels.triton import additive, simam, sparse

    x, w = torch.randn(1, 3, 4), torch.randn(4)
    calls: list[Callable[[], object]] = [
        lambda: additive.attend(x, x, w, x, None),
        lambda: sparse.attend(x, x, x, None, 0.5, False),
        lambda: simam.simam(x, 0.1),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="backend 'triton' cannot run this: its kernels are for GPUs"):
            call()
