"""regard list: what there is, by name."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro

from regard.cli.parsing.options import parse
from regard.cli.recording_output import note

# widths at the beginning of what is written
_SIZES = re.compile(r"\((?:\d+(?:, |(?=\))))+")


@dataclass(frozen=True)
class Options:
    """Names with a line each: mechanisms for --attention, gates for --gate, models for --model, data for --data."""

    what: Annotated[Literal["mechanisms", "gates", "models", "data"] | None, tyro.conf.Positional] = field(
        default=None, metadata={"called": "list"}
    )
    """Which of them; all if left out."""


def verb(args: Sequence[str]) -> int:
    typed = parse(Options, "regard list", args)
    lists = {"mechanisms": _mechanisms, "gates": _gates, "models": _models, "data": _data}
    if typed.what != "data" and sys.stderr.isatty():
        note("torch is loaded, which takes a moment")
    for n, what in enumerate(lists if typed.what is None else [typed.what]):
        named = lists[what]()
        wide = max(map(len, named)) + 3
        if typed.what is None:
            print(f"{chr(10) if n else ''}{what}\n")
        for name, line in named.items():
            print(f"  {name:{wide}}{line}")
    return 0


def _mechanisms() -> dict[str, str]:
    from regard.attn.catalogue import MECHANISMS, mechanism
    from regard.cli.mechanism_docs import telling

    # the width is of no matter, but even it suits all
    told = {name: telling(mechanism(name, 8)) for name in MECHANISMS}
    return {name: f"{_SIZES.sub('(', term.said).removesuffix('()')}: {term.formula}" for name, term in told.items()}


def _gates() -> dict[str, str]:
    from regard.cli.mechanism_docs import opening
    from regard.gates.catalogue import GATES

    return {"none": "no gate: every feature counts as it is."} | {
        name: opening(type(make(8))) for name, make in GATES.items()
    }


def _models() -> dict[str, str]:
    from regard.cli.mechanism_docs import opening
    from regard.models import MODELS

    return {name: opening(model) for name, model in MODELS.items()}


def _data() -> dict[str, str]:
    from regard.data.embedded import EMBEDDED, PICTURES

    return {name: one.about for name, one in EMBEDDED.items()} | PICTURES
