"""Options in a TOML file: tables [task], [task.model] and [training], or all options without tables. No torch here.

    data = "dates"
    lr = 3e-3
    minutes = 5

Names are those of the command line; what is typed there wins over the file. Paths are relative to the working
directory, not to the folder of the file. "None" stands for no value.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from regard.cli.parsing.option import Option, by_name, models_of, section_options
from regard.common import atomic_files
from regard.common.suggestions import known
from regard.training.config import TrainingConfig

CONFIG = "config.toml"


def read(path: Path, sections: Mapping[str, type]) -> dict[str, Any]:
    """The options in the file, by field name; those of a model are a dict of their own, with its "name"."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name the file in it, such as {path / CONFIG}")
    if not path.exists():
        raise ValueError(f"there is no file {path}; --config wants one with options, as RUN/{CONFIG} has them")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML ({error}); write lines such as: lr = 1e-3") from error
    chosen: dict[str, Any] = {}
    everywhere = by_name(section_options(sections), "")
    for place, options, key, value in _entries(path, content, sections):
        name = key.replace("-", "_")
        if name not in options and (other := everywhere.get(name)) is not None:
            table = place.partition(" of ")[0]
            raise ValueError(f"{key} is no option of {table} but of [{other.section}]; put it there in {path}")
        known(f"option in {place}:", name, options)
        option = options[name]
        typed = _typed(value, option, f"{key} in {place}")
        if option.model or (option.name == "model" and models_of(sections[option.section])):
            chosen.setdefault("model", {})["name" if option.name == "model" else name] = typed
        else:
            chosen[name] = typed
    return chosen


def _entries(
    path: Path, content: Mapping[str, Any], sections: Mapping[str, type]
) -> Iterator[tuple[str, Mapping[str, Option], str, Any]]:
    """Every line with its place in words and the options that may stand there."""
    for key, table in {"": content, **content}.items():
        if not isinstance(table, dict):
            continue
        if key:
            known(f"table in {path}:", key, sections)
        place = f"[{key}] of {path}" if key else str(path)
        model = table.get("model")
        named = model.get("name") if isinstance(model, dict) else model
        options = by_name(section_options({key: sections[key]} if key else sections), named)
        for name, value in table.items():
            if not isinstance(value, dict):
                yield place, options, name, value
            elif key and name == "model" and models_of(sections[key]):
                own = {"name": options["model"]} | {n: option for n, option in options.items() if option.model}
                yield from ((f"[{key}.model] of {path}", own, n, choice) for n, choice in value.items())
            elif key:
                yield place, options, name, value


def write(path: Path, task: Any, training: TrainingConfig) -> None:
    """Every choice, so that a repetition does not depend on what a later version takes for granted."""
    lines = ["# All options of this run; `regard train TASK --config` reads them."]
    for table, of in (("task", task), ("training", training)):
        lines += ["", f"[{table}]"]
        for one in fields(of):
            value = getattr(of, one.name)
            if value is not None or _default(one) is not None:
                lines.append(f"{one.name.replace('_', '-')} = {_written(value)}")
    atomic_files.write_atomically(path, ["\n".join([*lines, ""]).encode()])


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


def _typed(value: Any, option: Option, name: str) -> Any:
    """The value as the type of the option has it."""
    if option.optional and value == "None":
        return None
    if option.count in (0, 1):
        return _single(value, option, name)
    values = [value] if isinstance(value, str) else value
    if isinstance(values, list) and option.count in (None, len(values)):
        return tuple(_single(each, option, name) for each in values)
    what = {Path: "names of files", int: "whole numbers", float: "two numbers", str: "names"}[option.kind]
    raise ValueError(f"{name} must be a list of {what}, got {value!r}; write it as such")


def _single(value: Any, option: Option, name: str) -> Any:
    if option.choices:
        known(name, str(value), option.choices)
        return value
    if option.kind is Path and isinstance(value, str):
        return Path(value)
    if option.kind is float and type(value) in (int, float):
        return float(value)
    if type(value) is option.kind:
        return value
    wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "a name in quotes"}
    raise ValueError(f"{name} must be {wanted.get(option.kind, 'the name of a file')}, got {value!r}; write it as such")
