"""The argument parser: options of the command line out of dataclasses, with one sentence per mistake. No torch here.

    typed = parse(Options, "regard translate", ["RUN", "--beam", "3"])

Every field is an option, unless it is marked otherwise (`regard.common.option_fields`). The options of other
dataclasses, the sections, may stand beside them; a section receives only what was typed or given as a default.
"""

import contextlib
import difflib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, TypeVar

from regard.cli.parsing.option import Option, dashed, models_of, options_of
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
    # of several models with the same option, the first
    named = {option.flag: option for option in reversed(table) if not option.positional}
    words: list[str] = []
    texts: dict[str, list[str]] = {}
    values: dict[str, Any] = {}
    for flag, behind in _split(args, lambda flag: _known_option(flag, named, prog).count):
        if not flag:
            words += behind
            continue
        option = _known_option(flag, named, prog)
        if option.name in texts:
            raise ValueError(f"{option.flag} is given twice; give it once")
        _check_count(option, behind)
        texts[option.name] = behind
        if not option.model:
            values[option.name] = _convert(option, behind)
    models = {key: _model_name(table, key, section, values, defaults) for key, section in sections.items()}
    for key, model in models.items():
        _check_owner(table, key, model, texts)
    active = [option for option in table if option.model in ("", models.get(option.section))]
    values |= {option.name: _convert(option, texts[option.name]) for option in active if option.name in texts}
    _check_complete(prog, [option for option in active if option.required], values, defaults, len(words))
    values |= _place(prog, [option for option in table if option.positional], words)
    chosen = _choose(active, "", "", values, defaults)
    for key, section in sections.items():
        chosen[key] = _choose(active, key, "", values, defaults)
        if model := models[key]:
            own = _choose(active, key, model, values, _model_defaults(table, key, model, defaults))
            if chosen[key].pop("model", None) is not None or own or _requires_model(active, key):
                chosen[key]["model"] = models_of(section)[model](**own)
    return options(**chosen)


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
    flag = typed.replace("_", "-")
    if flag not in named:
        # without the dashes, which all have in common
        near = difflib.get_close_matches(flag.lstrip("-"), [name[2:] for name in named], n=1, cutoff=0.6)
        hint = f"did you mean --{near[0]}? " if near else ""
        raise ValueError(f"unknown option {typed}; {hint}{prog} --help lists what there is")
    return named[flag]


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


def _check_complete(
    prog: str, required: Sequence[Option], typed: Mapping[str, Any], defaults: Mapping[str, Any], words: int
) -> None:
    more = f"{prog} --help tells more"
    for option in required:
        given = option.name in typed or (option.section and option.name in defaults)
        if not option.positional and not given and option.name != "model":
            raise ValueError(f"{option.flag} is missing: {prog} {option.flag} {option.metavar(None)}; {more}")
    needed = [option.metavar(None) for option in required if option.positional]
    if words < len(needed):
        raise ValueError(f"{needed[words]} is missing: {prog} {' '.join(needed)}; {more}")


def _place(prog: str, options: Sequence[Option], words: Sequence[str]) -> dict[str, Any]:
    """The values of the options that are typed by their place."""
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


def _choose(
    options: Sequence[Option], section: str, model: str, typed: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """What is known of the options of a section, or of a model in it."""
    names = [option.name for option in options if (option.section, option.model) == (section, model)]
    values = {**defaults, **typed}
    return {name: values[name] for name in names if name in values}


def _model_name(
    options: Sequence[Option], key: str, section: type, typed: Mapping[str, Any], defaults: Mapping[str, Any]
) -> str:
    """The model of a section that was chosen; empty if there is none to choose."""
    models = models_of(section)
    if not models or not any((option.section, option.name) == (key, "model") for option in options):
        return ""
    name = typed.get("model") or defaults.get("model", {}).get("name", next(iter(models)))
    known("--model", name, models)
    return str(name)


def _model_defaults(options: Sequence[Option], key: str, model: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults that are given for a model; those for another one, if they name it, mean nothing to it."""
    given = dict(defaults.get("model", {}))
    if given.pop("name", model) != model:
        return {}
    texts = {name: map(str, value if isinstance(value, tuple) else [value]) for name, value in given.items()}
    _check_owner(options, key, model, texts)
    return given


def _check_owner(options: Sequence[Option], key: str, model: str, texts: Mapping[str, Iterable[str]]) -> None:
    """Refuses options that only other models of the section have."""
    for name, words in texts.items():
        owners = [option.model for option in options if (option.section, option.name) == (key, name)]
        if model and owners and not {"", model} & set(owners):
            raise ValueError(
                f"{' '.join([dashed(name), *words])} belongs to --model {' or '.join(owners)}, not to {model}; "
                "leave it out or choose the other model"
            )


def _requires_model(options: Sequence[Option], key: str) -> bool:
    return any((option.section, option.name) == (key, "model") and option.required for option in options)
