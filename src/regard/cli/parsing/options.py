"""Options as tyro reads them, out of plain dataclasses: the docstring of a field is its help. No torch here."""

import ast
import inspect
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, field, fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro

from regard.cli.main import first
from regard.cli.parsing import precheck
from regard.cli.parsing.precheck import bare
from regard.common.suggestions import known
from regard.training.config import PLANNED

T = TypeVar("T")

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


def part(of: type | None = None) -> dict[str, Any]:
    """The options of another dataclass beside one's own: metadata of a field, a dict of what was chosen.

    None: of the task, which `parse` is told.
    """
    return {"of": of}


def left_open(told: object) -> Any:
    """An option that is None unless typed, and what happens then."""
    return field(default=None, metadata={"open": f"(default: {told})", "told": told})


def positive(typed: object, *names: str) -> None:
    """Raises for a number that was typed and is below one."""
    for name in names:
        value = getattr(typed, name)
        if value is not None and value < 1:
            raise ValueError(f"{_dashed(name)} must be 1 or more, got {value}; {_way(typed, name)}")


def finite(typed: object, *names: str) -> None:
    """Raises for a number that was typed and is none, or has no end."""
    for name in names:
        value = getattr(typed, name)
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{_dashed(name)} must be a finite number, got {value}; {_way(typed, name)}")


def seeded(typed: Any) -> None:
    """Raises for a --seed that was typed and is none."""
    # torch takes no greater ones
    if typed.seed is not None and not 0 <= typed.seed < 2**63:
        raise ValueError(f"--seed must be 0 or more and below 2^63, got {typed.seed}; try --seed 1")


def _dashed(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _way(typed: Any, name: str) -> str:
    """What to type instead: the default, if that is a number."""
    (one,) = (one for one in fields(typed) if one.name == name)
    told = one.metadata.get("told", one.default)
    return f"try {_dashed(name)} {told}" if isinstance(told, int | float) else "leave it out"


def parse(of: type[T], prog: str, args: Sequence[str], given: Mapping[str, Any] | None = None, task: Any = None) -> T:
    """The options that were typed, those given (by a file, by a run) where none was, and otherwise the defaults.

    A word that is one of several has in its metadata what such words are "called".
    """
    given = {} if given is None else given
    ordered = precheck.check(of, prog, args, task)
    flat: Any = tyro.cli(
        _class(of, given, task),
        prog=prog,
        description=_about(of),
        args=ordered,
        console_outputs=first(),
        config=(tyro.conf.OmitArgPrefixes,),
    )
    return of(**_chosen(of, flat, given, task))


def _chosen(of: Any, flat: Any, given: Mapping[str, Any], task: Any) -> dict[str, Any]:
    hints = get_type_hints(of, include_extras=True)
    chosen = {}
    for one in fields(of):
        if not hasattr(flat, one.name):
            continue
        value = getattr(flat, one.name)
        if "of" in one.metadata:
            value = _chosen(one.metadata["of"] or task, value, given, task)
        elif value is None and one.default is not MISSING and get_origin(bare(hints[one.name])[0]) is tuple:
            # _quick left it open for tyro
            value = given.get(one.name, one.default)
        elif value is not None and get_origin(kind := bare(hints[one.name])[0]) is Literal:
            positional = tyro.conf.Positional in getattr(hints[one.name], "__metadata__", ())
            known(one.metadata["called"] if positional else _dashed(one.name), value, get_args(kind))
        chosen[one.name] = value
    return chosen


def _class(of: Any, given: Mapping[str, Any], task: Any, but: Sequence[str] = ()) -> type:
    """What tyro is given: the same fields with their help, with metavars, and told what they are when left open."""
    hints, said = get_type_hints(of, include_extras=True), documented(of)
    made: list[Any] = []
    for one in fields(of):
        if one.name in but:
            continue
        if "of" in one.metadata:
            # what is typed for all together is no option of one
            nested = _class(one.metadata["of"] or task, given, task, but=[other.name for other in fields(of)])
            made.append((one.name, Annotated[nested, tyro.conf.arg(help="")], field(default_factory=nested)))
            continue
        hint, default = hints[one.name], given.get(one.name, one.default)
        about = tyro.conf.arg(
            help=said[one.name],
            metavar=one.metadata.get("metavar") or metavar(one.name, hint, default),
            help_behavior_hint=_shown(of, one, default, task),
        )
        made.append((one.name, *_quick(hint, about, default)))
    return make_dataclass(of.__name__, made, kw_only=True)


def _quick(hint: Any, about: object, default: Any) -> tuple[Any, Any]:
    """The type and the default in a form that tyro checks by itself: for others it loads asyncio, which takes long."""
    kind, optional = bare(hint)
    if get_origin(kind) is Literal:
        kind = str  # it is checked below, with a suggestion
    if get_origin(kind) is tuple and default is not MISSING:
        optional, default = True, None
    marks = getattr(hint, "__metadata__", ())
    quick = Union[None, kind] if optional else kind  # noqa: UP007
    return Annotated[(quick, *marks, about)], field(default=default)


def _shown(of: Any, one: "Field[Any]", default: Any, task: Any) -> str:
    """What help says of an option that is not typed."""
    if default is MISSING:
        return ""
    if default is None or default == ():
        if of is task and (said := task.unsaid(one.name)):
            return f"(default: {said})"
        if task is not None and (ends := {"minutes": task.MINUTES, "steps": task.STEPS}.get(one.name)):
            each = ", ".join(f"{end:g} for {kind}" for kind, end in ends.items())
            return f"(default, if no end is given: {each})"
        return one.metadata.get("open", "")
    if isinstance(default, bool):
        return "(default: yes)" if default else ""
    if one.name == "schedule" and default in PLANNED and task and default == task.TRAINING.get("schedule"):
        return f"(default: {default}; {one.default} where minutes alone end it)"
    return f"(default: {' '.join(map(str, default)) if isinstance(default, tuple) else default})"


def _family(of: type) -> list[type]:
    """A class and those it is made of."""
    return [one for one in of.__mro__ if is_dataclass(one)]


def _about(of: type) -> str:
    """What a class says of itself, and then what those say that it is made of."""
    return "\n\n".join(inspect.cleandoc(one.__doc__) for one in _family(of) if one.__doc__)


def documented(of: type) -> dict[str, str]:
    """The string that stands below each field."""
    found = {}
    # what a class says of a field holds, not what those say that it is made of
    for each in reversed(_family(of)):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(tree, ast.ClassDef)
        for one, two in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(two, ast.Expr):
                assert isinstance(two.value, ast.Constant)
                found[one.target.id] = str(two.value.value)
    return found


def metavar(name: str, hint: Any, default: Any) -> str | None:
    """What stands behind an option in its help; None leaves it to tyro."""
    kind, optional = bare(hint)
    if kind == tuple[Path, ...]:
        return "FILE [FILE]"
    if kind == tuple[str, ...]:
        return f"[{name.upper()} ...]"
    if kind == tuple[int, ...]:
        return "INT [INT ...]"
    if get_origin(kind) is tuple:
        return "FLOAT FLOAT"
    if kind is bool and not optional:
        return None
    if get_origin(kind) is Literal:
        said = "{" + ",".join(map(str, get_args(kind))) + "}"
    elif kind is Path:
        said = "RUN" if default is MISSING else "FOLDER" if name in ("run", "out") else "FILE"
    else:
        said = {bool: "{True,False}", str: "NAME", int: "INT", float: "FLOAT"}[kind]
    return f"{said}|None" if optional and default is not None else said
