"""Every backend of a device against the equation on the CPU, outputs and gradients."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import regard
from benchmarks.gpu import cases

# the greatest difference, as a share of the largest number: products of float32 may be rounded to tf32
TOLERANCES = {torch.float32: 2e-3, torch.float16: 1e-2, torch.bfloat16: 4e-2}
# gradients of parameters are sums over all pairs, in a half type
_SUMMED = 4
# of the input of a gate
_MAP = (2, 6, 9, 11)

Results = dict[str, Tensor]  # by name, on the CPU in float32


@dataclass(frozen=True)
class Parity:
    """The greatest difference of a call from the CPU, or the error in its place."""

    name: str  # of the case, the backend and the type, as `--only` takes it
    difference: float = torch.inf  # as a share of the largest number
    where: str = ""  # what differs the most
    tolerance: float = 0.0
    error: str = ""

    @property
    def holds(self) -> bool:
        return not self.error and self.difference <= self.tolerance

    def __str__(self) -> str:
        said = self.error or f"{self.where} differs by {self.difference:.1e}, at most {self.tolerance:.0e} may be"
        return f"{self.name}: {said}"


EVERY = (*cases.CASES, *cases.GATES)


def names(
    device: torch.device, only: str | None = None, chosen: Sequence[str] = EVERY
) -> Iterator[tuple[str, str, str, torch.dtype]]:
    """The name, the case, the backend and the type of every comparison, or of the one that is called `only`."""
    for case in chosen:
        for backend in _backends(case, device):
            for dtype in TOLERANCES:
                name = f"{case}/{backend}/{str(dtype).removeprefix('torch.')}"
                if only in (None, name):
                    yield name, case, backend, dtype


def _backends(case: str, device: torch.device) -> list[str]:
    if case in cases.CASES:
        q = torch.empty(1, 1, 2, 2, device=device)
        return [line.split()[0] for line in regard.explain(q, q).splitlines()[2:]]
    return ["torch", "triton"]


def compare_all(
    device: torch.device, only: str | None = None, chosen: Sequence[str] = EVERY, say: Callable[[str], object] = print
) -> list[Parity]:
    """The comparisons that the backends do not refuse. An error of the one that is called `only` is raised."""
    made = []
    expected: dict[tuple[str, torch.dtype, bool], Results] = {}
    for name, case, backend, dtype in names(device, only, chosen):
        for training in (True, False):
            try:
                results = compute(case, backend, device, dtype, dtype, training)
            except Exception as error:
                if is_refusal(error, backend):
                    continue  # without gradients it may run
                if only is not None:
                    raise
                made.append(Parity(name, error=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"))
            else:
                key = case, dtype, training
                if key not in expected:
                    expected[key] = compute(case, "eager", torch.device("cpu"), dtype, torch.float32, training)
                made.append(_compare(name, results, expected[key], TOLERANCES[dtype]))
            say(str(made[-1]))
            break
    return made


def is_refusal(error: Exception, backend: str) -> bool:
    """Whether a backend has said that it cannot run the call."""
    return isinstance(error, ValueError) and f"backend {backend!r} cannot run this" in str(error)


def compute(
    case: str, backend: str, device: torch.device, numbers: torch.dtype, dtype: torch.dtype, training: bool
) -> Results:
    """The output, and in training the gradients, of numbers that a type has, computed in another."""
    torch.manual_seed(0)
    if case in cases.GATES:
        options = {} if backend in ("torch", "eager") else {"backend": backend}
        module = cases.GATES[case](**options)
        inputs = {"x": torch.randn(_MAP, generator=torch.Generator().manual_seed(0))}
    else:
        module = regard.Attention(**cases.CASES[case].terms(), backend=backend)
        inputs = dict(zip("qkv", cases.tensors(), strict=True))
    module.to(numbers).to(device, dtype)
    moved = {name: t.to(numbers).to(device, dtype).requires_grad_(training) for name, t in inputs.items()}
    with torch.set_grad_enabled(training):
        if case in cases.GATES:
            out = module(moved["x"])
        else:
            out = module(moved["q"], moved["k"], moved["v"], mask=cases.CASES[case].mask(lambda t: t.to(device)))
    results = {"the output": out}
    if training:
        weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(numbers).to(device, dtype)
        leaves = {**moved, **dict(module.named_parameters())}
        gradients = torch.autograd.grad((out * weight).sum(), list(leaves.values()))
        results |= {f"the gradient of {name}": t for name, t in zip(leaves, gradients, strict=True)}
    return {name: t.detach().float().cpu() for name, t in results.items()}


def _compare(name: str, results: Results, expected: Results, tolerance: float) -> Parity:
    compared = []
    for what, t in expected.items():
        size, is_finite = max(t.abs().max().item(), 1e-6), results[what].isfinite().all()
        difference = (results[what] - t).abs().max().item() / size if is_finite else torch.inf
        allowed = tolerance * (_SUMMED if "." in what else 1)
        compared.append(Parity(name, difference, what, allowed))
    return max(compared, key=lambda each: each.difference / each.tolerance)
