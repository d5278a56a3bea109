"""A tiny run of a task."""

from typing import Any, NamedTuple


class Case(NamedTuple):
    """`options` of `regard train` for a run of a moment, `inputs` of `regard predict`, two values to compare (none if
    nothing can be compared), targets for `Predictor.loss`, and further arguments of `regard predict`; names in capitals
    stand for paths of `write_files`. Small files are read faster than embedded data sets are made."""

    options: str
    inputs: tuple[str, ...]
    varied: tuple[str, ...]
    targets: tuple[Any, ...]
    predict: str = ""
