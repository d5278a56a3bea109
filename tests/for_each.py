"""One test for all members of a catalogue: it goes on after a failure, and names every member that fails."""

import functools
import inspect
import itertools
import math
import random
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import product

Test = Callable[..., None]


def for_each(
    names: str | Sequence[str],
    values: Iterable[Any],
    ids: Callable[[Any], object] | Iterable[str] | None = None,
    share: float = 1.0,
) -> Callable[[Test], Test]:
    """Calls a test with every value, as `pytest.mark.parametrize` would, but counts as one test.

    Each call starts from the seed of a test, and has a `tmp_path` and a `monkeypatch` of its own; other fixtures are
    shared. A message about several values has the traceback of each. With a `share` below 1, `make test` tries a random
    part of the values, with a fixed seed; `make test-all` (--whole) tries all.
    """
    values = list(values)
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    names = ", ".join(parameters)
    labels = itertools.repeat(None) if ids is None or callable(ids) else ids
    cases = {}
    for number, (value, label) in enumerate(zip(values, labels, strict=False)):
        members = [value] if len(parameters) == 1 else list(value)
        if label is None:
            label = "-".join(str(ids(member) if callable(ids) else _label(member, number)) for member in members)
        cases[f"{number} {label}" if label in cases else label] = dict(zip(parameters, members, strict=True))
    if len(cases) != len(values):
        raise ValueError(f"{len(values)} values of {names} have {len(cases)} ids")
    if not cases:
        raise ValueError(f"{names} has no values: a test of nothing cannot fail")

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def whole(*args: Any, **fixtures: Any) -> None:
            failures = []
            size = len(cases) if product.whole else math.ceil(share * len(cases))
            for label in random.Random(0).sample(list(cases), size) if size < len(cases) else cases:
                try:
                    _call(test, args, fixtures, cases[label])
                except pytest.skip.Exception as error:
                    raise AssertionError(f"{label} skips, and the values behind it with it: leave it out") from error
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"failed with {names}: {label}")
                    failures.append(error)
            if failures:
                offenders = [error.__notes__[-1].partition(": ")[2] for error in failures]
                raise BaseExceptionGroup(f"{test.__name__} fails with {names}: {', '.join(offenders)}", failures)

        signature = inspect.signature(test)
        fixtures = [parameter for name, parameter in signature.parameters.items() if name not in parameters]
        whole.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return whole

    return decorate


def _call(test: Test, args: tuple[Any, ...], fixtures: Mapping[str, Any], case: Mapping[str, Any]) -> None:
    torch.manual_seed(0)
    changed: dict[str, Any] = {}
    if "tmp_path" in fixtures:
        changed["tmp_path"] = Path(tempfile.mkdtemp(dir=fixtures["tmp_path"]))
    with pytest.MonkeyPatch.context() as monkeypatch:
        if "monkeypatch" in fixtures:
            changed["monkeypatch"] = monkeypatch
        test(*args, **{**fixtures, **changed, **case})


def _label(value: object, number: int) -> object:
    return value if isinstance(value, str | int | float) else getattr(value, "__name__", number)
