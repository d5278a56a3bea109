"""ANSWERS: which module of this room evaluates and predicts for runs of a task, and what such modules share.

A module here has two functions of what was typed, each with an exit code:

    evaluated(typed: evaluate.Options) -> int
    predicted(typed: predict.Options) -> int
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from regard.cli.progress import counted, number

if TYPE_CHECKING:
    from regard.cli.verbs.evaluate import Options

# by the name of the task's class, which a run records
ANSWERS = {
    "Translate": "translators",
    "ClassifyImage": "pictures",
    "Glimpse": "glimpses",
    "Caption": "captions",
    "Generate": "drawings",
}


def answering(run: Path) -> ModuleType:
    """The module that answers for a run."""
    from regard.cli.loading import recorded

    kind = recorded(run).kind
    if kind not in ANSWERS:
        raise ValueError(f"{run} is a run of {kind}, which this version does not know; update regard")
    return import_module(f"regard.cli.{ANSWERS[kind]}")


def refuse(typed: object, names: Sequence[str], why: str) -> None:
    """Options that were typed and mean nothing to this run."""
    for name in names:
        value = getattr(typed, name)
        # 0 is a value that was typed
        if value is not None and value is not False and value != ():
            raise ValueError(f"--{name.replace('_', '-')} {why}; leave it out")


def write(typed: Options, lines: Sequence[str]) -> None:
    """What was said, a line each, into the file of --out, if one is named."""
    if typed.out is not None:
        text = "".join(line.replace("\n", " ") + "\n" for line in lines)
        typed.out.write_text(text, encoding="utf-8", newline="\n")


def tell(typed: Options, step: int, seconds: float, count: int, counts: str, found: Mapping[str, Any]) -> None:
    """What an evaluation found, as text or JSON; `found` has "scores" and "split"; `counts` is "images"."""
    told = {
        "run": str(typed.run),
        "weights": typed.weights,
        "step": step,
        counts: count,
        **found,
        "seconds": seconds,
        f"{counts}_per_second": count / seconds,
    }
    if typed.json:
        print(json.dumps(told, indent=2, ensure_ascii=False))
        return
    wide = max(10, *(len(name) + 2 for name in found["scores"]))
    for name, value in found["scores"].items():
        print(f"{name:{wide}}{number(value)}")
    print(
        f"{counted(count, counts.removesuffix('s'))} of the {found['split']} split in {seconds:.1f} s; "
        f"{typed.weights} weights, of step {step:,}"
    )
