"""regard list: names of mechanisms, gates, models, data sets and environments."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from regard.cli.output import note
from regard.cli.parsing.parser import parse
from regard.common.options.fields import flag, positional

# widths at the beginning of the arguments
_SIZES = re.compile(r"\((?:\d+(?:, |(?=\))))+")


@dataclass(frozen=True)
class ListOptions:
    """Print names with one line each: mechanisms for --attention, gates for --gate, models, data sets for --data,
    environments for --env."""

    what: Literal["mechanisms", "gates", "models", "data", "environments"] | None = positional(None, called="list")
    """One of the lists; all if left out."""
    json: bool = flag()
    """Print a JSON object: for every list its names, each with its line."""


def run(args: Sequence[str]) -> int:
    options = parse(ListOptions, "regard list", args)
    lists = {
        "mechanisms": _mechanisms,
        "gates": _gates,
        "models": _models,
        "data": _data,
        "environments": _environments,
    }
    if options.what != "data" and sys.stderr.isatty():
        note("loading torch")
    chosen = {title: lists[title]() for title in (lists if options.what is None else [options.what])}
    if options.json:
        print(json.dumps(chosen, indent=2, ensure_ascii=False))
        return 0
    for n, (title, summaries) in enumerate(chosen.items()):
        width = max(map(len, summaries)) + 3
        if options.what is None:
            print(f"{chr(10) if n else ''}{title}\n")
        for name, summary in summaries.items():
            print(f"  {name:{width}}{summary}")
    return 0


def _mechanisms() -> dict[str, str]:
    from regard.attn.catalogue import MECHANISMS, mechanism
    from regard.cli.mechanism_docs import distinctive_term, learned_names

    lines = {}
    for name in MECHANISMS:
        module = mechanism(name, 8)  # any even width suits all mechanisms
        term, learned = distinctive_term(module), ", ".join(learned_names(module))
        code = _SIZES.sub("(", term.code).removesuffix("()")
        lines[name] = f"{code}: {term.formula} {f'Learned: {learned}.' if learned else 'Nothing is learned.'}"
    return lines


def _gates() -> dict[str, str]:
    from regard.cli.mechanism_docs import first_paragraph
    from regard.gates.catalogue import GATES

    return {"none": "no gate: every feature counts as it is."} | {
        name: first_paragraph(type(make(8))) for name, make in GATES.items()
    }


def _models() -> dict[str, str]:
    from regard.cli.mechanism_docs import first_paragraph
    from regard.models import MODELS

    return {name: first_paragraph(model) for name, model in MODELS.items()}


def _data() -> dict[str, str]:
    from regard.data import embedded

    described = {name: dataset.about for name, dataset in (embedded.EMBEDDED | embedded.TEXTS).items()}
    return described | embedded.DESCRIPTIONS


def _environments() -> dict[str, str]:
    from regard.cli.mechanism_docs import first_paragraph
    from regard.data.environments.catalogue import ENVIRONMENTS

    return {name: first_paragraph(environment) for name, environment in ENVIRONMENTS.items()}
