"""regard explain: the formula of a mechanism, and the backend that computes it."""

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.cli.output import warn
from regard.cli.parsing.parser import parse
from regard.common.options.checks import CheckedOptions
from regard.common.options.fields import at_least, flag, left_open, positional

# the largest width, whose matrices fit into memory, and the most numbers in the queries or the keys
_MOST_WIDTH, _MOST_NUMBERS = 8192, 2**28


@dataclass(frozen=True)
class ExplainOptions(CheckedOptions):
    """Print the formula of a mechanism, the backend that runs a call of the given size, and why the others do not."""

    mechanism: str = positional()
    """Its name, as `regard list mechanisms` has it."""
    queries: int = at_least(1, 64)
    """The number of queries."""
    keys: int = at_least(1, 64)
    """The number of keys."""
    width: int = at_least(1, 64, maximum=_MOST_WIDTH)
    """The width of the queries."""
    key_width: int | None = left_open("as the queries", minimum=1, maximum=_MOST_WIDTH)
    """The width of the keys."""
    batch: int = at_least(1, 1)
    """The batch size."""
    causal: bool = flag()
    """No query attends to later keys."""
    weights: bool = flag()
    """The call also asks for the weights."""
    json: bool = flag()
    """Print a JSON object with the terms, the documentation and the backends."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, length, width in (
            ("--queries", self.queries, self.width),
            ("--keys", self.keys, self.key_width or self.width),
        ):
            if self.batch * length * width > _MOST_NUMBERS:
                raise ValueError(
                    f"{option} {length} of width {width} in --batch {self.batch} do not fit into memory: they are more "
                    f"than {_MOST_NUMBERS} numbers; try {option} 64 --batch 1"
                )


def run(args: Sequence[str]) -> int:
    options = parse(ExplainOptions, "regard explain", args)
    import torch

    from regard.attn.call import Need
    from regard.attn.catalogue import mechanism
    from regard.attn.terms.sequence_masks import Causal
    from regard.cli.mechanism_docs import documentation, page, terms
    from regard.gates.catalogue import GATES

    if options.mechanism.split(":")[0] in GATES:
        raise ValueError(
            f"{options.mechanism!r} is a gate, not a mechanism; docs/gates/index.md explains the gates, and "
            "regard list gates names them"
        )
    module: Any = mechanism(options.mechanism, options.width, options.key_width).eval()
    key_width = options.key_width or options.width
    q, k = (
        torch.zeros(options.batch, options.queries, options.width),
        torch.zeros(options.batch, options.keys, key_width),
    )
    need = Need(weights=options.weights)
    mask = Causal() if options.causal else None
    backends = f"{type(module).__name__.removeprefix('_')} does not report the backends of its parts."
    if hasattr(module, "explain"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            backends = module.explain(q, k, mask=mask, need=need)
        warn([str(warning.message) for warning in caught])
    description = {
        "mechanism": options.mechanism,
        "equation": "weights = normalize(score(q, k) + bias, mask);  out = read(weights, v)",
        "terms": [term._asdict() for term in terms(module)],
        "documentation": documentation(module),
        "backends": backends,
        "page": page(options.mechanism),
    }
    print(json.dumps(description, indent=2, ensure_ascii=False) if options.json else _as_text(description))
    return 0


def _as_text(description: dict[str, Any]) -> str:
    terms = [f"  {term['role']:10} {term['code']}\n{'':13}{term['formula']}" for term in description["terms"]]
    parts = [description["mechanism"], f"  {description['equation']}", "\n".join(terms)]
    parts += filter(None, [description["documentation"], description["backends"]])
    return "\n\n".join([*parts, f"More: {description['page']}"])
