"""Formulas of a mechanism: the first lines of the docstrings of its terms."""

import inspect
from typing import NamedTuple

from torch import nn

from regard.attn.catalogue import MECHANISMS
from regard.attn.layer import Attention
from regard.attn.multihead import MultiHead

# mechanisms on the page of another one; every other mechanism has a page of its own name
_PAGES = {
    "scaled-dot": "dot",
    "biased-general": "general",
    "activated-general": "general",
    "concat": "additive",
    "euclid": "distance",
    "entmax-learned": "entmax",
    "relu-squared": "relu",
    "kerple-power": "kerple",
    "hard-argmax": "hard",
    "straight-through": "gumbel",
    "local-m": "local",
    "local-p": "local",
    "location-smooth": "location-sensitive",
    "mocha": "monotonic",
    "set-outlier": "set-distance",
    "sink": "null",
    "gatv2": "gat",
    "grouped": "multi-head",
    "multi-query": "multi-head",
}
# terms that many mechanisms have
_COMMON = ("Softmax()", "WeightedSum()", "Sum()")
# the roles of a term that distinguishes a mechanism from others; the first that it has decides
_DISTINCTIVE = (
    "rotate",
    "qk_norm",
    "difference",
    "gate",
    "chunk",
    "place",
    "read",
    "mask",
    "bias",
    "normalize",
    "mechanism",
    "score",
)


class Term(NamedTuple):
    """A part of a mechanism."""

    role: str
    code: str  # the expression that makes it
    formula: str


def page(name: str) -> str:
    """The page of the documentation that describes a mechanism."""
    assert name in MECHANISMS
    return f"docs/mechanisms/{_PAGES.get(name, name)}.md"


def first_paragraph(documented: type) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())


def terms(module: nn.Module) -> list[Term]:
    """The terms of a mechanism, in the order of the equation."""
    return [term for term, _ in _parts(module)]


def _parts(module: nn.Module) -> list[tuple[Term, object]]:
    whole = [] if isinstance(module, Attention) else [("mechanism", module)]
    inner = getattr(module, "attention", getattr(getattr(module, "pool", None), "attention", module))
    parts = {role: getattr(inner, role, None) for role in ("score", "bias", "mask", "normalize", "read")}
    parts |= {role: getattr(module, role, None) for role in ("place", "chunk")}
    if isinstance(module, MultiHead):  # the rotation of Latent is a part of it, not what distinguishes it
        parts |= {role: getattr(module, role) for role in ("qk_norm", "rotate", "difference", "gate")}
    roles = whole + [(role, part) for role, part in parts.items() if part is not None]
    return [(_term(role, part), part) for role, part in roles]


def documentation(module: nn.Module) -> str:
    """The texts of the terms' docstrings behind their formulas."""
    parts = {term.role: part for term, part in _parts(module) if term.code not in _COMMON}
    later = [(inspect.getdoc(type(part)) or "").partition("\n\n")[2] for part in parts.values()]
    return "\n\n".join(text for text in later if text)


def distinctive_term(module: nn.Module) -> Term:
    """The term that distinguishes a mechanism from the others."""
    by_role = {term.role: term for term in terms(module) if term.code not in _COMMON}
    return next(by_role[role] for role in _DISTINCTIVE if role in by_role)


def learned_names(module: nn.Module) -> list[str]:
    """The names of what is trained: query for score.query.weight and score.query.bias, bias for normalize.bias."""
    parts = [name.split(".") for name, _ in module.named_parameters()]
    is_layer = [part[-1] in ("weight", "bias") and part[-2:-1] not in ([], ["normalize"]) for part in parts]
    return list(dict.fromkeys(part[-2] if inside else part[-1] for part, inside in zip(parts, is_layer, strict=True)))


def _term(role: str, part: object) -> Term:
    code = repr(part)
    if isinstance(part, MultiHead):
        code = f"MultiHead({part.query.in_features}, {part.heads}, kv_heads={part.kv_heads})"
    elif "\n" in code:
        code = type(part).__name__.removeprefix("_")
    return Term(role, code, first_paragraph(type(part)))
