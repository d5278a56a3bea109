"""What an einsum does, by its letters: does it make scores of queries and keys, or read values by weights?"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

_MORE = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Arranged = Callable[[Tensor], Tensor]


class EinsumParts(NamedTuple):
    """The letters of both operands and of the result, dots spelt out."""

    first: str
    second: str
    out: str


def parsed(equation: str, a: Tensor, b: Tensor) -> EinsumParts | None:
    """None where a letter comes twice in one operand, or the result is not told."""
    equation = equation.replace(" ", "")
    if "->" not in equation or equation.count(",") != 1:
        return None
    given, out = equation.split("->")
    first, second = given.split(",")
    spare = [letter for letter in _MORE if letter not in equation]
    dots = max(
        (t.ndim - len(told) + 3 for told, t in ((first, a), (second, b)) if "..." in told),
        default=0,
    )
    stand = "".join(spare[:dots])

    def whole(told: str, axes: int) -> str:
        return told.replace("...", stand[len(stand) - (axes - len(told) + 3) :] if "..." in told else "")

    parts = EinsumParts(whole(first, a.ndim), whole(second, b.ndim), out.replace("...", stand))
    return parts if all(len(set(one)) == len(one) for one in parts) else None


def arranged(told: str, want: str) -> Arranged | None:
    """A tensor of axes `told` laid out as `want`, with axes of one for those it has not; None if it has others."""
    if set(told) - set(want):
        return None
    order = [told.index(letter) for letter in want if letter in told]

    def apply(t: Tensor) -> Tensor:
        t = t.permute(order)
        for axis, letter in enumerate(want):
            if letter not in told:
                t = t.unsqueeze(axis)
        return t

    return apply


def scoring(parts: EinsumParts) -> tuple[Arranged, Arranged] | None:
    """Queries "*b q d" and keys "*b k d" of a product that sums over one letter and ends in (q, k)."""
    summed = (set(parts.first) & set(parts.second)) - set(parts.out)
    if len(summed) != 1 or len(parts.out) < 2:
        return None
    d = summed.pop()
    lead, q, k = parts.out[:-2], parts.out[-2], parts.out[-1]
    if q in parts.second or k in parts.first or q not in parts.first or k not in parts.second:
        return None
    queries, keys = arranged(parts.first, lead + q + d), arranged(parts.second, lead + k + d)
    return None if queries is None or keys is None else (queries, keys)


class Reading(NamedTuple):
    """How values and result lie, as "*b k v" and "*b q v"."""

    values: Arranged
    result: Arranged


def reading(weights: str, values: str, out: str) -> Reading | None:
    """Weights "*b q k" that sum values over k."""
    if len(weights) < 2:
        return None
    lead, q, k = weights[:-2], weights[-2], weights[-1]
    width = [letter for letter in values if letter not in weights]
    if k not in values or k in out or len(width) != 1 or q in values:
        return None
    v, result = arranged(values, lead + k + width[0]), arranged(out, lead + q + width[0])
    return None if v is None or result is None else Reading(v, result)
