"""Calls whose backends are compared with the CPU, in the same numbers on every device."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

import regard
from regard import normalizers, scores

Place = Callable[[Tensor], Tensor]

# samples, heads, heads of keys, queries and keys, width: more than a tile of 128, and not a whole one
SAMPLES, HEADS, KEY_HEADS, LENGTH, WIDTH = 2, 4, 2, 150, 64


class Case(NamedTuple):
    """The terms of a call, made anew for each, and its mask, of a function that places a tensor on the device."""

    terms: Callable[[], dict[str, Any]] = dict
    mask: Callable[[Place], Any] = lambda place: None


def _lengths(place: Place) -> regard.Lengths:
    return regard.Lengths(place(torch.tensor([LENGTH, LENGTH // 3])))


def _empty(place: Place) -> regard.Lengths:
    return regard.Lengths(place(torch.tensor([0, LENGTH - 1])))


def _documents(place: Place) -> regard.Documents:
    return regard.Documents(place(torch.arange(SAMPLES * LENGTH).view(SAMPLES, LENGTH) // 41))


MASKS: dict[str, Callable[[Place], Any]] = {
    "no mask": lambda place: None,
    "Causal": lambda place: regard.Causal(),
    "Lengths": _lengths,
    "Lengths, an empty sample": _empty,
    "Causal & Lengths": lambda place: regard.Causal() & _lengths(place),
    "Causal & ~Lengths": lambda place: regard.Causal() & ~_lengths(place),
    "Window": lambda place: regard.Window(40, 0),
    "Window & Lengths": lambda place: regard.Window(40, 30) & _lengths(place),
    "Documents": _documents,
    "Causal & Documents": lambda place: regard.Causal() & _documents(place),
    "Prefix": lambda place: regard.Prefix(place(torch.tensor([5, 90]))),
    "boolean tensor": lambda place: place(torch.arange(LENGTH * LENGTH).view(LENGTH, LENGTH) % 3 > 0),
    "~Causal | Window": lambda place: ~regard.Causal() | regard.Window(20, 0),
}
TERMS: dict[str, Callable[[], dict[str, Any]]] = {
    "ALiBi": lambda: {"bias": regard.ALiBi(HEADS)},
    "T5Buckets": lambda: {"bias": regard.T5Buckets(HEADS)},
    "Shaw": lambda: {"bias": regard.Shaw(WIDTH)},
    "RelativeXL": lambda: {"bias": regard.RelativeXL(WIDTH, HEADS, WIDTH)},
    "SoftCap": lambda: {"score": scores.SoftCap(5.0)},
    "null slot": lambda: {"normalize": normalizers.WithNullSlot(regard.Softmax())},
    "sparsemax": lambda: {"normalize": regard.Sparsemax()},
    "entmax 1.5": lambda: {"normalize": regard.Entmax(1.5)},
    "additive": lambda: {"score": regard.Additive(WIDTH, WIDTH, 48)},
    "feature map": lambda: {"score": scores.Kernel(), "normalize": normalizers.Sum()},
}
CASES: dict[str, Case] = {
    **{name: Case(mask=mask) for name, mask in MASKS.items()},
    **{
        f"{name}, {masked}": Case(terms, MASKS[masked])
        for name, terms in TERMS.items()
        for masked in ("Causal", "Lengths")
    },
}
GATES: dict[str, Callable[[], torch.nn.Module]] = {"SimAM": regard.gates.SimAM}


def tensors() -> list[Tensor]:
    """Queries, keys and values on the CPU."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(SAMPLES, heads, LENGTH, WIDTH, generator=generator) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
