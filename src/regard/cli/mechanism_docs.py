"""Formulas of a mechanism: the first lines of the docstrings of what it is made of."""

import inspect
from typing import NamedTuple

from torch import nn

from regard.attn.catalogue import MECHANISMS
from regard.attn.layer import Attention
from regard.attn.multihead import MultiHead

# a page may speak of several mechanisms; the others are called as theirs
_PAGES = {
    "scaled-dot": "dot",
    "concat": "additive",
    "euclid": "distance",
    "entmax-learned": "entmax",
    "hard-argmax": "hard",
    "straight-through": "gumbel",
    "local-m": "local",
    "local-p": "local",
    "location-smooth": "location-sensitive",
    "mocha": "monotonic",
    "grouped": "multi-head",
    "multi-query": "multi-head",
}
# what many have, and by which term the others are told apart: the first that there is
_USUAL = ("Softmax()", "WeightedSum()", "Sum()")
_TELLING = ("rotate", "chunk", "place", "read", "mask", "bias", "normalize", "mechanism", "score")


class Term(NamedTuple):
    role: str
    said: str  # as it would be written
    formula: str


def page(name: str) -> str:
    """Where the documentation speaks of a mechanism."""
    assert name in MECHANISMS
    return f"docs/mechanisms/{_PAGES.get(name, name)}.md"


def opening(of: type) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(of) or "").split("\n\n")[0].split())


def terms(module: nn.Module) -> list[Term]:
    """What a mechanism is made of, in the order of the equation."""
    own = [] if isinstance(module, Attention) else [_term("mechanism", module)]
    inner = getattr(module, "attention", getattr(getattr(module, "pool", None), "attention", module))
    parts = {role: getattr(inner, role, None) for role in ("score", "bias", "mask", "normalize", "read")}
    parts |= {role: getattr(module, role, None) for role in ("place", "chunk", "rotate")}
    return own + [_term(role, part) for role, part in parts.items() if part is not None]


def telling(module: nn.Module) -> Term:
    """The one term that makes it this mechanism."""
    found = {term.role: term for term in terms(module) if term.said not in _USUAL}
    return next(found[role] for role in _TELLING if role in found)


def _term(role: str, part: object) -> Term:
    said = repr(part)
    if isinstance(part, MultiHead):
        said = f"MultiHead({part.query.in_features}, {part.heads}, kv_heads={part.kv_heads})"
    elif "\n" in said:
        said = type(part).__name__.removeprefix("_")
    return Term(role, said, opening(type(part)))
