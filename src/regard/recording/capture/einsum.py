"""Einsum equations by their letters: those that make scores of queries and keys, and those that read values."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Arrange = Callable[[Tensor], Tensor]


class EinsumParts(NamedTuple):
    """The letters of both operands and of the result, dots spelt out."""

    first: str
    second: str
    out: str


def parse(equation: str, a: Tensor, b: Tensor) -> EinsumParts | None:
    """None where a letter occurs twice in one operand, or the result is implicit."""
    equation = equation.replace(" ", "")
    if "->" not in equation or equation.count(",") != 1:
        return None
    operands, out = equation.split("->")
    first, second = operands.split(",")
    unused = [letter for letter in _LETTERS if letter not in equation]
    dots = max(
        (t.ndim - len(letters) + 3 for letters, t in ((first, a), (second, b)) if "..." in letters),
        default=0,
    )
    batch = "".join(unused[:dots])

    def spelt_out(letters: str, axes: int) -> str:
        return letters.replace("...", batch[len(batch) - (axes - len(letters) + 3) :] if "..." in letters else "")

    parts = EinsumParts(spelt_out(first, a.ndim), spelt_out(second, b.ndim), out.replace("...", batch))
    return parts if all(len(set(letters)) == len(letters) for letters in parts) else None


def arrangement(letters: str, target: str) -> Arrange | None:
    """Permutes axes `letters` of a tensor to `target`, with axes of one for those it lacks; None if it has more."""
    if set(letters) - set(target):
        return None
    order = [letters.index(letter) for letter in target if letter in letters]

    def apply(t: Tensor) -> Tensor:
        t = t.permute(order)
        for axis, letter in enumerate(target):
            if letter not in letters:
                t = t.unsqueeze(axis)
        return t

    return apply


def score_operands(parts: EinsumParts) -> tuple[Arrange, Arrange] | None:
    """Queries "*b q d" and keys "*b k d" of a product that sums over one letter and ends in (q, k)."""
    summed = (set(parts.first) & set(parts.second)) - set(parts.out)
    if len(summed) != 1 or len(parts.out) < 2:
        return None
    d = summed.pop()
    lead, q, k = parts.out[:-2], parts.out[-2], parts.out[-1]
    if q in parts.second or k in parts.first or q not in parts.first or k not in parts.second:
        return None
    queries, keys = arrangement(parts.first, lead + q + d), arrangement(parts.second, lead + k + d)
    return None if queries is None or keys is None else (queries, keys)


class ReadOperands(NamedTuple):
    """Arranges the values to "*b k v" and the result to "*b q v"; weights of one query lack its axis."""

    values: Arrange
    result: Arrange
    has_one_query: bool = False


def read_operands(weights: str, values: str, out: str) -> ReadOperands | None:
    """Values and result of a product in which weights "*b q k" sum values over k; or "*b k", of one query each."""
    if len(weights) < 2:
        return None
    lead, q, k = weights[:-2], weights[-2], weights[-1]
    width = [letter for letter in values if letter not in weights]
    if k not in values or k in out or len(width) != 1:
        return None
    if q in values:
        v, rows = arrangement(values, weights + width[0]), arrangement(out, weights[:-1] + width[0])
        if v is None or rows is None or q not in out:
            return None
        return ReadOperands(v, lambda t: rows(t).unsqueeze(-2), has_one_query=True)
    v, result = arrangement(values, lead + k + width[0]), arrangement(out, lead + q + width[0])
    return None if v is None or result is None else ReadOperands(v, result)
