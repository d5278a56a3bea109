"""Options in a TOML file: tables [task], [task.model] and [training], or all options without tables. No torch here.

    data = "dates"
    lr = 3e-3
    minutes = 5

Names are those of the command line, whose options win over the file. Paths are relative to the working directory, not
to the folder of the file. "None" stands for no value.
"""

import re
import reprlib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.cli.parsing.option import Option, by_name, models_of, section_options
from regard.common.suggestions import known
from regard.training.run_folder import CONFIG

# parts of a name with dots, at most
_MAX_PARTS = 64


def read(path: Path, sections: Mapping[str, type]) -> dict[str, Any]:
    """The options in the file, by field name; those of a model are a dict of their own, with its "name"."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name the file in it, such as {path / CONFIG}")
    if not path.exists():
        raise ValueError(f"there is no file {path}; --config names a file with options, such as RUN/{CONFIG}")
    try:
        text = path.read_text(encoding="utf-8")
        _check_depth(text)
        content = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply; write lines such as: lr = 1e-3") from error
    except ValueError as error:  # numbers of too many digits as well
        raise ValueError(f"{path} is not TOML ({error}); write lines such as: lr = 1e-3") from error
    values: dict[str, Any] = {}
    every_option = by_name(section_options(sections), "")
    for place, options, key, value in _entries(path, content, sections):
        name = key.replace("-", "_")
        if name not in options and (other := every_option.get(name)) is not None:
            table = place.partition(" of ")[0]
            raise ValueError(f"{key} is no option of {table} but of [{other.section}]; put it there in {path}")
        known(f"option in {place}:", name, options)
        option = options[name]
        converted = _convert(value, option, f"{key} in {place}")
        if option.model or (option.name == "model" and models_of(sections[option.section])):
            values.setdefault("model", {})["name" if option.name == "model" else name] = converted
        else:
            values[name] = converted
    return values


def _check_depth(text: str) -> None:
    """Raises RecursionError for a name of many parts, a.a.a…, which tomllib reads in quadratic time."""
    for line in text.splitlines():
        if any(name.count(".") > _MAX_PARTS for name in re.split(r"[=,/{}\[\]]", line)):
            raise RecursionError


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
        model_name = model.get("name") if isinstance(model, dict) else model
        options = by_name(section_options({key: sections[key]} if key else sections), model_name)
        for name, value in table.items():
            if not isinstance(value, dict):
                yield place, options, name, value
            elif key and name == "model" and models_of(sections[key]):
                model_options = {"name": options["model"]} | {
                    n: option for n, option in options.items() if option.model
                }
                yield from ((f"[{key}.model] of {path}", model_options, n, choice) for n, choice in value.items())
            elif key:
                yield place, options, name, value


def _convert(value: Any, option: Option, name: str) -> Any:
    """The value in the type of the option."""
    if option.optional and value == "None":
        return None
    if option.count in (0, 1):
        return _single(value, option, name)
    values = [value] if isinstance(value, str) else value
    if isinstance(values, list) and option.count in (None, len(values)):
        return tuple(_single(each, option, name) for each in values)
    kinds = {Path: "names of files", int: "whole numbers", float: "two numbers", str: "names"}[option.kind]
    raise ValueError(f"{name} must be a list of {kinds}, got {value!r}; write it in brackets, such as [..., ...]")


def _single(value: Any, option: Option, name: str) -> Any:
    if option.choices:
        known(name, str(value), option.choices)
        return value
    if option.kind is Path and isinstance(value, str):
        return Path(value)
    if option.kind is float and type(value) in (int, float):
        try:
            return float(value)
        except OverflowError as error:
            raise ValueError(
                f"{name} must be a number that is a float, got {reprlib.repr(value)}; write it such as 0.5"
            ) from error
    if type(value) is option.kind:
        return value
    kind, example = {
        int: ("a whole number", "10"),
        float: ("a number", "0.5"),
        bool: ("true or false", "true"),
        str: ("a name in quotes", '"dates"'),
    }.get(option.kind, ("the name of a file in quotes", '"pairs.tsv"'))
    raise ValueError(f"{name} must be {kind}, got {value!r}; write it such as {example}")
