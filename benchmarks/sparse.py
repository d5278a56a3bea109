"""Sparse normalizers, compared with softmax and with the package entmax."""

import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import regard
from benchmarks.table import Case, Row, absent, cost, gain
from benchmarks.timing import Effort, both_ways

SHAPE = (4096, 512)


def package() -> dict[str, Callable[[Tensor], Tensor]] | None:
    """The functions of the package by the names of regard."""
    try:
        import entmax  # type: ignore[import-untyped]
    except ImportError:
        return None
    return {"Sparsemax": lambda x: entmax.sparsemax(x, dim=-1), "Entmax(1.5)": lambda x: entmax.entmax15(x, dim=-1)}


def normalize(effort: Effort) -> Iterator[Row]:
    """sparsemax and entmax 1.5, forward and with backward"""
    x = torch.randn(SHAPE, requires_grad=True)
    peers = package()
    softmax, other = "torch.softmax", "package entmax"
    for name, made in {"Sparsemax": regard.Sparsemax(), "Entmax(1.5)": regard.Entmax(1.5)}.items():
        mine = f"regard.{name}"

        def ours(made: regard.Normalizer = made) -> Tensor:
            return made(x)

        calls: dict[str, Callable[[], Tensor]] = {mine: ours}
        if peers is not None:
            calls[other] = functools.partial(peers[name], x)
        calls[softmax] = lambda: torch.softmax(x, dim=-1)
        for way, timed in both_ways(calls, [x], effort, agree=[other] if peers is not None else []):
            case = f"{name} {SHAPE[0]} rows of {SHAPE[1]} {way}"
            at_most = 1.5 if way == "forward" else 4.0
            yield cost(case, timed, mine, softmax, at_most)
            if peers is None:
                yield absent(case, f"{mine} : {other}", "entmax is not installed: pip install regard[bench]")
            else:
                yield gain(case, timed, mine, other, 10)


CASES: dict[str, Case] = {"normalize": normalize}
