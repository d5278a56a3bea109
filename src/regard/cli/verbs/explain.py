"""regard explain: the formula of a mechanism, and the backend that computes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.cli.parsing.parser import parse
from regard.common.option_checks import check_positive
from regard.common.option_fields import flag, left_open, positional


@dataclass(frozen=True)
class ExplainOptions:
    """Print the formula of a mechanism, the backend that runs a call of the given size, and why the others do not."""

    mechanism: str = positional()
    """Its name, as `regard list mechanisms` has it."""
    queries: int = 64
    """The number of queries."""
    keys: int = 64
    """The number of keys."""
    width: int = 64
    """The width of the queries."""
    key_width: int | None = left_open("as the queries")
    """The width of the keys."""
    batch: int = 1
    """The batch size."""
    causal: bool = flag()
    """No query attends to later keys."""
    weights: bool = flag()
    """The call also asks for the weights."""

    def __post_init__(self) -> None:
        check_positive(self, "queries", "keys", "width", "key_width", "batch")


def run(args: Sequence[str]) -> int:
    options = parse(ExplainOptions, "regard explain", args)
    import torch

    from regard.attn.call import Need
    from regard.attn.catalogue import mechanism
    from regard.attn.terms.mask import Causal
    from regard.cli.mechanism_docs import page, terms

    module: Any = mechanism(options.mechanism, options.width, options.key_width).eval()
    print(f"{options.mechanism}\n\n  weights = normalize(score(q, k) + bias, mask);  out = read(weights, v)\n")
    for term in terms(module):
        print(f"  {term.role:10} {term.code}\n{'':13}{term.formula}")
    key_width = options.key_width or options.width
    q, k = (
        torch.zeros(options.batch, options.queries, options.width),
        torch.zeros(options.batch, options.keys, key_width),
    )
    need = Need(weights=options.weights)
    mask = Causal() if options.causal else None
    print()
    if hasattr(module, "explain"):
        print(module.explain(q, k, mask=mask, need=need))
    else:
        print(f"{type(module).__name__.removeprefix('_')} does not report the backends of its parts.")
    print(f"\nMore: {page(options.mechanism)}")
    return 0
