"""Options in a TOML file: [task] and [training], or all of them without tables; names as they are typed. No torch here.

    data = "dates"
    lr = 3e-3
    minutes = 5

A word on the command line wins over the file. Paths start in the folder where the command is typed, not in that of the
file. Every run writes its options into config.toml, with whole paths, so that
`regard train translate --config RUN/config.toml --out OTHER` repeats it. "None" is written for nothing.
"""

import json
import tomllib
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from regard.cli.parsing.precheck import bare
from regard.common import atomic_files
from regard.common.suggestions import known
from regard.training.config import TrainingConfig

CONFIG = "config.toml"


def read(path: Path, task: type) -> dict[str, Any]:
    """What the file chooses for a task of this class, by the names of the fields."""
    tables = {"task": task, "training": TrainingConfig}
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name the file in it, such as {path / CONFIG}")
    if not path.exists():
        raise ValueError(f"there is no file {path}; --config wants one with options, as RUN/{CONFIG} has them")
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML ({error}); write lines such as: lr = 1e-3") from error
    hints = {name: hint for of in tables.values() for name, hint in get_type_hints(of).items()}
    chosen: dict[str, Any] = {}
    for name, value in told.items():
        if isinstance(value, dict):
            known(f"table in {path}:", name, list(tables))
        table = value if name in tables and isinstance(value, dict) else {name: value}
        names = _names(tables[name]) if table is value else [one for of in tables.values() for one in _names(of)]
        place = f"[{name}] of {path}" if table is value else str(path)
        for key, choice in table.items():
            option = key.replace("-", "_")
            if table is value and option not in names and option in hints:
                (other,) = tables.keys() - {name}
                raise ValueError(f"{key} is no option of [{name}] but of [{other}]; put it there in {path}")
            known(f"option in {place}:", option, names)
            chosen[option] = _typed(choice, hints[option], f"{key} in {place}")
    return chosen


def write(path: Path, task: Any, training: TrainingConfig) -> None:
    """Every choice, so that a repetition does not depend on what a later version takes for granted."""
    lines = ["# All options of this run; `regard train TASK --config` reads them."]
    for table, of in (("task", task), ("training", training)):
        lines += ["", f"[{table}]"]
        for one in fields(of):
            value = getattr(of, one.name)
            if value is not None or _default(one) is not None:
                lines.append(f"{one.name.replace('_', '-')} = {_written(value)}")
    atomic_files.write(path, ["\n".join([*lines, ""]).encode()])


def _names(of: Any) -> list[str]:
    return [one.name for one in fields(of)]


def _default(one: "Field[Any]") -> Any:
    return None if one.default is MISSING else one.default


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, int | float):
        return repr(value)
    # JSON's strings are TOML's but for one character
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _typed(value: Any, hint: Any, name: str) -> Any:
    """The value as the option's type has it."""
    kind, optional = bare(hint)
    if optional and value == "None":
        return None
    if get_origin(kind) is Literal:
        known(name, str(value), get_args(kind))
        return value
    if get_origin(kind) is tuple:
        of, last = get_args(kind)
        several = [value] if isinstance(value, str) else value
        if isinstance(several, list) and (last is ... or len(several) == len(get_args(kind))):
            return tuple(_typed(one, of, name) for one in several)
    elif kind is Path and isinstance(value, str):
        return Path(value)
    elif kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif type(value) is kind:
        return value
    wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "a name in quotes"}
    several = {
        Path: "the name of a file",
        tuple[Path, ...]: "a list of names of files",
        tuple[float, float]: "a list of two numbers",
        tuple[int, ...]: "a list of whole numbers",
    }
    raise ValueError(f"{name} must be {wanted.get(kind) or several[kind]}, got {value!r}; write it as such")
