"""regard explain: a mechanism's formula, and who computes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from regard.cli.parsing.options import Flag, left_open, parse, positive


@dataclass(frozen=True)
class Options:
    """What a mechanism computes, and which backend would run a call of the given size and why the others would not."""

    mechanism: Annotated[str, tyro.conf.Positional]
    """Its name, as `regard list mechanisms` has it."""
    queries: int = 64
    """How many queries."""
    keys: int = 64
    """How many keys."""
    width: int = 64
    """How wide the queries are."""
    key_width: int | None = left_open("as the queries")
    """How wide the keys are."""
    batch: int = 1
    """How many samples at once."""
    causal: Flag = False
    """No query looks at later keys."""
    weights: Flag = False
    """The weights are asked for as well."""

    def __post_init__(self) -> None:
        positive(self, "queries", "keys", "width", "key_width", "batch")


def verb(args: Sequence[str]) -> int:
    typed = parse(Options, "regard explain", args)
    import torch

    from regard.attn.call import Need
    from regard.attn.catalogue import mechanism
    from regard.attn.terms.mask import Causal
    from regard.cli.mechanism_docs import page, terms
    from regard.tasks.translate.options import SCORED

    if (score := SCORED.get(typed.mechanism)) is not None:
        raise ValueError(
            f"{typed.mechanism} is a --decoder of regard train translate, whose attention is {score}; try {score}"
        )
    module: Any = mechanism(typed.mechanism, typed.width, typed.key_width).eval()
    print(f"{typed.mechanism}\n\n  weights = normalize(score(q, k) + bias, mask);  out = read(weights, v)\n")
    for term in terms(module):
        print(f"  {term.role:10} {term.said}\n{'':13}{term.formula}")
    key_width = typed.key_width or typed.width
    q, k = torch.zeros(typed.batch, typed.queries, typed.width), torch.zeros(typed.batch, typed.keys, key_width)
    need = Need(weights=typed.weights)
    mask = Causal() if typed.causal else None
    print()
    if hasattr(module, "explain"):
        print(module.explain(q, k, mask=mask, need=need))
    else:
        print(f"{type(module).__name__.removeprefix('_')} does not tell which backends compute its parts.")
    print(f"\nMore: {page(typed.mechanism)}")
    return 0
