"""The argument parser: options of the command line out of dataclasses, with one sentence per mistake. No torch here.

    typed = parse(Options, "regard translate", ["RUN", "--beam", "3"])

Every field is an option, unless it is marked otherwise (`regard.common.option_fields`). The options of other
dataclasses, the sections, may stand beside them; a section receives only what was typed or given as a default.
"""

import contextlib
import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, TypeVar

from regard.cli.parsing.option import Option, by_name, models_of, options_of
from regard.common.suggestions import known

T = TypeVar("T")

_HELP = ("-h", "--help")
# what a value must be, by its type
_WANTED = {int: "a whole number", float: "a number", bool: "True or False"}


def parse(
    options: type[T],
    prog: str,
    args: Sequence[str],
    *,
    sections: Mapping[str, type] = {},
    defaults: Mapping[str, Any] = {},
) -> T:
    """The options that were typed, then `defaults` (of a file, of a run), then those of the dataclass itself.

    A field that is named as one of `sections` becomes a dict of the options of that dataclass, by field name: those
    that were typed or that are in `defaults`. Required options of `options` itself must be typed.
    """
    table = options_of(options, sections)
    if any(word in _HELP for word in takewhile(lambda word: word != "--", args)):
        # torchrun starts several processes
        if os.environ.get("RANK", "0") == "0":
            from regard.cli.parsing.help import format_help

            print(format_help(options, prog, table, sections, defaults))
        raise SystemExit(0)
    key, models = _models(table, sections)
    model = _model_name(models, args, defaults) if models else ""
    named = by_name([option for option in table if not option.positional], model)
    words: list[str] = []
    values: dict[str, Any] = {}
    for typed, texts in _split(args, lambda typed: _known_option(typed, named, prog).count):
        if not typed:
            words += texts
            continue
        option = _known_option(typed, named, prog)
        if option.name in values:
            raise ValueError(f"{option.flag} is given twice; give it once")
        _check_count(option, texts)
        _check_owner(option, texts, table, model)
        values[option.name] = _convert(option, texts)
    given = _model_defaults(named, table, model, defaults)
    chosen: dict[str, Any] = {name: {} for name in sections}
    own: dict[str, Any] = {}
    for option in named.values():
        # options of the command itself that are required must be typed
        source = given if option.model else {} if option.required and not option.section else defaults
        if option.name == "model" and model:
            continue
        if option.name in values or option.name in source:
            target = own if option.model else chosen[option.section] if option.section else chosen
            target[option.name] = values.get(option.name, source.get(option.name))
        elif option.required and option.model in ("", model):
            usage = f"{prog} {option.flag} {option.metavar(None)}"
            raise ValueError(f"{option.flag} is missing: {usage}; {prog} --help tells more")
    if model and (own or "model" in values or "model" in defaults or named["model"].required):
        chosen[key]["model"] = models[model](**own)
    return options(**chosen, **_place(prog, [option for option in table if option.positional], words))


def positionals(options: type, args: Sequence[str]) -> list[str]:
    """The words that stand by their place, unchecked; an option that is not known is taken to have one value."""
    counts = {option.flag: option.count for option in options_of(options, {}) if not option.positional}
    counts |= dict.fromkeys(_HELP, 0)
    pairs = _split(args, lambda flag: counts.get(flag.replace("_", "-"), 1))
    return [word for flag, words in pairs if not flag for word in words]


def _split(args: Sequence[str], count: Callable[[str], int | None]) -> Iterator[tuple[str, list[str]]]:
    """Every option with the words that are its values; words by their place come with an empty option."""
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if not _is_option(word):
            yield "", rest if word == "--" else [word]
            rest = [] if word == "--" else rest
            continue
        flag, equals, value = word.partition("=")
        most = 0 if equals else count(flag)
        values = [value] if equals else []
        while rest and (most is None or len(values) < most) and rest[0] != "--" and not _is_option(rest[0]):
            values.append(rest.pop(0))
        yield flag, values


def _is_option(word: str) -> bool:
    """Whether a word names an option, and is no text and no negative number."""
    return re.match(r"--\S|-[a-zA-Z]", word) is not None and " " not in word.partition("=")[0]


def _known_option(typed: str, named: Mapping[str, Option], prog: str) -> Option:
    flags = {option.flag: option for option in named.values()}
    flag = typed.replace("_", "-")
    if flag not in flags:
        # without the dashes, which all have in common
        near = difflib.get_close_matches(flag.lstrip("-"), [each[2:] for each in flags], n=1, cutoff=0.6)
        hint = f"did you mean --{near[0]}? " if near else ""
        raise ValueError(f"unknown option {typed}; {hint}{prog} --help lists what there is")
    return flags[flag]


def _check_count(option: Option, texts: Sequence[str]) -> None:
    flag, wanted = option.flag, _WANTED.get(option.kind, "a value")
    least = 1 if option.count is None else option.count
    if len(texts) < least:
        if least > 1:
            raise ValueError(f"{flag} wants {least} values, each {wanted}, got {len(texts)}")
        raise ValueError(f"{flag} wants {wanted} behind it; one that begins with a dash is typed {flag}=-…")
    if option.count == 0 and texts:
        raise ValueError(f"{flag} stands alone, got {flag}={texts[0]}; leave the value out")


def _convert(option: Option, texts: Sequence[str]) -> Any:
    """The value of an option from the words behind it."""
    if option.count == 0 or (option.optional and list(texts) == ["None"]):
        return True if option.count == 0 else None
    values = [_value(option, text) for text in texts]
    return values[0] if option.count == 1 else tuple(values)


def _value(option: Option, text: str) -> Any:
    if option.choices:
        called = option.field.metadata.get("called") or option.name
        known(called if option.positional else option.flag, text, option.choices)
    if option.kind is bool:
        if text not in ("True", "False"):
            raise ValueError(f"{option.flag} must be {_WANTED[bool]}, got {text!r}; write one of them")
        return text == "True"
    try:
        return option.kind(text)
    except ValueError:
        raise ValueError(
            f"{option.flag} must be {_WANTED[option.kind]}, got {text!r}; write it in digits, such as {_digits(text)}"
        ) from None


def _digits(text: str) -> str:
    """The whole number that was meant, as far as that can be known."""
    with contextlib.suppress(ValueError, OverflowError):
        return str(int(float(text)))
    return "10"


def _place(prog: str, options: Sequence[Option], words: Sequence[str]) -> dict[str, Any]:
    """The values of the options that are typed by their place."""
    needed = [option.metavar(None) for option in options if option.required]
    if len(words) < len(needed):
        raise ValueError(f"{needed[len(words)]} is missing: {prog} {' '.join(needed)}; {prog} --help tells more")
    if len(words) > len(options) and all(option.count is not None for option in options):
        most = len(options) or "no"
        raise ValueError(f"{prog} takes {most} words beside its options, got {len(words)}; quote what has spaces")
    values = {}
    rest = list(words)
    for option in options:
        texts, rest = (rest, []) if option.count is None else (rest[:1], rest[1:])
        if texts:
            values[option.name] = _convert(option, texts)
    return values


def _models(table: Sequence[Option], sections: Mapping[str, type]) -> tuple[str, dict[str, type]]:
    """The section that has models to choose from, and these."""
    keys = [option.section for option in table if option.section and option.name == "model"]
    return next(((key, models) for key in keys if (models := models_of(sections[key]))), ("", {}))


def _model_name(models: Mapping[str, type], args: Sequence[str], defaults: Mapping[str, Any]) -> str:
    """The model that is typed, or given, or the first; needed before the options of models can be read."""
    name = defaults.get("model", {}).get("name", next(iter(models)))
    for typed, texts in _split(args, lambda typed: 1):
        if typed == "--model" and texts:
            name = texts[0]
    known("--model", name, models)
    return str(name)


def _model_defaults(
    named: Mapping[str, Option], table: Sequence[Option], model: str, defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """The defaults that are given for the options of a model; those that are given for another model are dropped."""
    given = dict(defaults.get("model", {})) if model else {}
    if given.pop("name", model) != model:
        return {}
    for name, value in given.items():
        _check_owner(
            named[name], [str(each) for each in (value if isinstance(value, tuple) else [value])], table, model
        )
    return given


def _check_owner(option: Option, texts: Sequence[str], table: Sequence[Option], model: str) -> None:
    """Refuses an option that only other models have."""
    if option.model not in ("", model):
        owners = " or ".join(each.model for each in table if each.name == option.name)
        raise ValueError(
            f"{' '.join([option.flag, *texts])} belongs to --model {owners}, not to {model}; "
            "leave it out or choose the other model"
        )
