"""Rules between two fields of a request as JSON Schema, so that /openapi.json states them.

They are documentation: an endpoint checks its rules itself, with a sentence for each.
"""

from collections.abc import Sequence
from typing import Any

Rule = dict[str, Any]


def either(*alternatives: dict[str, dict[str, Any]]) -> Rule:
    """One of these alternatives holds: name of a field -> its schema."""
    return {"anyOf": [{"properties": fields} for fields in alternatives]}


def only_if(field: str, **conditions: dict[str, Any]) -> Rule:
    """The field, which is false by default, may be true only if these fields fit these schemas."""
    return either({field: {"const": False}}, conditions)


def excluding(flag: str, without: Sequence[str], with_flag: Sequence[str]) -> Rule:
    """With the flag, which is false by default, the fields `without` it are refused; without the flag, the others."""

    def refused(names: Sequence[str]) -> dict[str, Any]:
        return {"not": {"anyOf": [{"required": [name]} for name in names]}}

    on = {"properties": {flag: {"const": True}}, "required": [flag], **refused(without)}
    return {"anyOf": [on, {"properties": {flag: {"const": False}}, **refused(with_flag)}]}


def at_most_product(items: str, number: str, product: int) -> list[dict[str, dict[str, Any]]]:
    """Alternatives that together say: the length of a list times a number is at most `product`."""
    lengths = {product // factor: None for factor in range(product, 0, -1)}  # the longest list of each number
    return [{items: {"maxItems": length}, number: {"maximum": product // length}} for length in lengths]


def at_most_field(smaller: str, larger: str, default: int, most: int) -> Rule:
    """`smaller` is at most `larger`, which has a default."""
    return {
        "anyOf": [
            {
                "properties": {smaller: {"maximum": n}, larger: {"minimum": n}},
                **({"required": [larger]} if n > default else {}),
            }
            for n in range(1, most + 1)
        ]
    }
