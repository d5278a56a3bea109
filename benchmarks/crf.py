"""Conditional random field, compared with the package pytorch-crf: python -m benchmarks crf."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.table import Case, Row, absent, gain
from benchmarks.timing import Effort, Timed, backward, compare
from regard.kernels import crf, native_library

# batch, length, tags: the speed-up of loss and gradient that each form must reach
LOSS = {(64, 100, 20): (6, 12), (16, 400, 40): (12, 40), (1, 1000, 20): (12, 40)}
VITERBI = {(64, 100, 20): (2, 25)}
MINE, PEER = {"regard.CRF torch": False, "regard.CRF native": True}, "pytorch-crf"


def _problem(shape: tuple[int, int, int]) -> tuple[Tensor, Tensor, Tensor, crf.Potentials]:
    b, t, k = shape
    scores = [torch.empty(size).uniform_(-0.1, 0.1).requires_grad_() for size in [(k, k), (k,), (k,)]]
    mask = torch.ones(b, t, dtype=torch.bool)
    return torch.randn(b, t, k, requires_grad=True), torch.randint(k, (b, t)), mask, crf.Potentials(*scores)


def _package(potentials: crf.Potentials) -> Any:
    """The layer of the package with these scores; None if it is not installed."""
    try:
        import torchcrf
    except ImportError:
        return None
    layer = torchcrf.CRF(len(potentials.start), batch_first=True)
    for name, score in zip(["transitions", "start_transitions", "end_transitions"], potentials, strict=True):
        setattr(layer, name, torch.nn.Parameter(score.detach()))
    return layer


def _forms() -> dict[str, bool]:
    """The forms that this machine can run."""
    return {name: native for name, native in MINE.items() if not native or native_library.library() is not None}


def loss(effort: Effort) -> Iterator[Row]:
    """the loss of a batch with all gradients, in torch and native"""
    for shape, bounds in LOSS.items():
        yield from _rows(f"loss {shape} +backward", _loss(shape, effort), bounds)


def viterbi(effort: Effort) -> Iterator[Row]:
    """the best path of a batch, as lists, in torch and native"""
    for shape, bounds in VITERBI.items():
        yield from _rows(f"Viterbi {shape}", _viterbi(shape, effort), bounds)


def _rows(case: str, timed: Timed | None, bounds: tuple[int, int]) -> Iterator[Row]:
    for (name, native), bound in zip(MINE.items(), bounds, strict=True):
        if timed is None:
            yield absent(case, f"{name} : {PEER}", "pytorch-crf is not installed: pip install regard[bench]")
        elif native and (reason := native_library.unavailable_reason()) is not None:
            yield absent(case, f"{name} : {PEER}", reason)
        else:
            yield gain(case, timed, name, PEER, bound)


def _loss(shape: tuple[int, int, int], effort: Effort) -> Timed | None:
    emissions, tags, mask, potentials = _problem(shape)
    package = _package(potentials)
    if package is None:
        return None
    calls: dict[str, Callable[[], object]] = {
        name: backward(partial(crf.nll, emissions, tags, mask, potentials, native), [emissions, *potentials])
        for name, native in _forms().items()
    }
    leaves = [emissions, package.transitions, package.start_transitions, package.end_transitions]
    calls[PEER] = backward(lambda: -package(emissions, tags, mask, reduction="none"), leaves)
    # over a thousand positions the package itself is off by 1e-3, the difference of two sums of thousands
    agree = list(calls)[1:] if shape[1] < 1000 else list(calls)[1:2]
    return compare(calls, effort, grad=True, agree=agree, threads=1)


def _viterbi(shape: tuple[int, int, int], effort: Effort) -> Timed | None:
    emissions, _, mask, potentials = _problem(shape)
    package = _package(potentials)
    if package is None:
        return None

    def ours(native: bool) -> list[list[int]]:
        return crf.viterbi(emissions, mask, potentials, native)[0].tolist()

    calls: dict[str, Callable[[], object]] = {name: partial(ours, native) for name, native in _forms().items()}
    calls[PEER] = lambda: package.decode(emissions, mask)
    assert all(call() == calls[PEER]() for call in calls.values())
    return compare(calls, effort, threads=1)


CASES: dict[str, Case] = {"loss": loss, "viterbi": viterbi}
