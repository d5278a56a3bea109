"""The argument parser: options of the command line out of dataclasses, with one sentence per mistake. No torch here.

    options = parse(Options, "regard translate", ["RUN", "--beam", "3"])

Every field is an option or, if it is marked so, a positional argument or a flag (`regard.common.options.fields`). The
options of other dataclasses, the sections, may stand beside them; a section receives the options that were typed or
that have a default of a file or of a run.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

from regard.cli.main import TASK_OPTIONS, is_main_process
from regard.cli.output import note
from regard.cli.parsing.option import Option, by_name, models_of, options_of
from regard.common.options.checks import dashed
from regard.common.suggestions import known, nearest

T = TypeVar("T")

_HELP = ("-h", "--help")
# the description of a value, by its type
_VALUE_KINDS = {int: "a whole number", float: "a number", bool: "True or False"}


def parse(
    options: type[T],
    prog: str,
    args: Sequence[str],
    *,
    sections: Mapping[str, type] = {},
    defaults: Mapping[str, Any] = {},
) -> T:
    """The values that were typed; for other options those of `defaults`, then those of the dataclass.

    A field with the name of a section becomes a dict of the options of that dataclass, by field name: those that were
    typed or that are in `defaults`. Required options of `options` itself must be typed. `defaults` that a typed option
    excludes or decides anew (`replaced` of a section) are left out.
    """
    table = options_of(options, sections)
    if asks_for_help(args):
        # torchrun starts several processes
        if is_main_process():
            from regard.cli.parsing.help import format_help

            print(format_help(options, prog, table, sections, defaults))
        raise SystemExit(0)
    key, models = _models(table, sections)
    model = _model_name(models, args, defaults, sections[key]) if models else ""
    named = by_name([option for option in table if not option.positional], model)
    words: list[str] = []
    values: dict[str, Any] = {}
    for flag, texts in _split(args, lambda flag: _known_option(flag, named, prog).count):
        if not flag:
            words += texts
            continue
        option = _known_option(flag, named, prog)
        if option.name in values:
            raise ValueError(f"{option.flag} is given twice; give it once")
        _check_count(option, texts)
        _check_owner(option, texts, table, model)
        values[option.name] = _convert(option, texts)
    defaults = _without_replaced(values, named, defaults, sections)
    model_defaults = _model_defaults(named, table, model, defaults, values.get("config", "the file"))
    arguments: dict[str, Any] = {name: {} for name in sections}
    model_arguments: dict[str, Any] = {}
    for option in named.values():
        # options of the command itself that are required must be typed
        source = model_defaults if option.model else {} if option.required and not option.section else defaults
        if option.name == "model" and model:
            continue
        if option.name in values or option.name in source:
            owner = arguments[option.section] if option.section else arguments
            target = model_arguments if option.model else owner
            target[option.name] = values.get(option.name, source.get(option.name))
        elif option.required and option.model in ("", model):
            needed = [other.metavar(None) for other in table if other.positional and other.required]
            usage = " ".join([prog, option.flag, option.metavar(None), *needed])
            raise ValueError(f"{option.flag} is missing: {usage}; {prog} --help lists the options")
    if model and (model_arguments or "model" in values or "model" in defaults or named["model"].required):
        arguments[key]["model"] = models[model](**model_arguments)
    return options(**arguments, **_positional_values(prog, [option for option in table if option.positional], words))


def asks_for_help(args: Sequence[str]) -> bool:
    return any(word in _HELP for word in takewhile(lambda word: word != "--", args))


def positionals(options: Sequence[type], args: Sequence[str]) -> list[str]:
    """The positional arguments, unchecked; `options` are the dataclasses whose options may stand between them."""
    table = [option for each in options for option in options_of(each, {})]
    return [word for flag, words in _unchecked(table, args) if not flag for word in words]


def unchecked_values(options: type, args: Sequence[str], *, sections: Mapping[str, type] = {}) -> dict[str, str]:
    """The first word behind every option, for defaults of other options that depend on it."""
    values: dict[str, str] = {}
    for flag, words in _unchecked(options_of(options, sections), args):
        if words:
            values.setdefault(flag, words[0])
    return values


def _unchecked(table: Sequence[Option], args: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Every option with its words; an option that is not in the table is assumed to have one value."""
    counts = {option.flag: option.count for option in table if not option.positional} | dict.fromkeys(_HELP, 0)
    return _split(args, lambda flag: counts.get(flag.replace("_", "-"), 1))


def _split(args: Sequence[str], count: Callable[[str], int | None]) -> Iterator[tuple[str, list[str]]]:
    """Every option with the words that are its values; positional arguments come with an empty option."""
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if not _is_option(word):
            yield "", rest if word == "--" else [word]
            rest = [] if word == "--" else rest
            continue
        flag, equals, value = word.partition("=")
        limit = 0 if equals else count(flag)
        values = [value] if equals else []
        while rest and (limit is None or len(values) < limit) and rest[0] != "--" and not _is_option(rest[0]):
            values.append(rest.pop(0))
        yield flag, values


def _is_option(word: str) -> bool:
    """Whether a word is an option, and not a text or a negative number."""
    return re.match(r"--\S|-[a-zA-Z]", word) is not None and " " not in word.partition("=")[0]


def _known_option(flag: str, named: Mapping[str, Option], prog: str) -> Option:
    options = {option.flag: option for option in named.values()}
    dashed = flag.replace("_", "-")
    if dashed not in options:
        if owners := _other_tasks(dashed, prog):
            tasks = ", ".join(owners[:-1]) + " and " + owners[-1] if len(owners) > 1 else owners[0]
            raise ValueError(f"{flag} is an option of {tasks}, not of this task; {prog} --help lists the options")
        # compared without the leading dashes, which all options have
        near = nearest(dashed.lstrip("-"), [each[2:] for each in options])
        hint = "" if near is None else f"did you mean --{near}? "
        raise ValueError(f"unknown option {flag}; {hint}{prog} --help lists the options")
    return options[dashed]


def _other_tasks(flag: str, prog: str) -> list[str]:
    """The tasks that have an option of this name for the same command."""
    verb = prog.split()[1] if " " in prog else ""
    nested = TASK_OPTIONS.get(verb)
    if nested is None and verb not in ("train", "compare"):
        return []
    from regard.tasks.registry import TASKS

    name = flag.removeprefix("--").replace("-", "_")
    owners: dict[str, list[Any]] = {
        task: [config, *config.models.values()] if nested is None else [getattr(config, nested)]
        for task, config in TASKS.items()
    }
    return [
        task for task, options in owners.items() if name in {item.name for owner in options for item in fields(owner)}
    ]


def _check_count(option: Option, texts: Sequence[str]) -> None:
    flag, kind = option.flag, _VALUE_KINDS.get(option.kind, "a value")
    least = 1 if option.count is None else option.count
    if len(texts) < least:
        if least > 1:
            raise ValueError(f"{flag} needs {least} values, each {kind}, got {len(texts)}; give {least}")
        is_bool = option.kind is bool
        way_out = f"write {flag} True" if is_bool else f"a value that begins with a dash is typed {flag}=-…"
        raise ValueError(f"{flag} needs {kind} behind it; {way_out}")
    if option.count == 0 and texts:
        raise ValueError(f"{flag} stands alone, got {flag}={texts[0]}; leave the value out")


def _convert(option: Option, texts: Sequence[str]) -> Any:
    """The value of an option from the words behind it."""
    if option.count == 0 or (option.optional and list(texts) == ["None"]):
        return True if option.count == 0 else None
    values = [_value(option, text) for text in texts]
    return values[0] if option.count == 1 else tuple(values)


def _value(option: Option, text: str) -> Any:
    called = (option.field.metadata.get("called") or option.name) if option.positional else option.flag
    if option.choices:
        known(called, text, option.choices)
    if option.kind is Path and not text:
        # an empty path would be the working directory; an unset variable of a shell gives one
        is_file = option.field.metadata.get("metavar", option.value_name) == "FILE"
        way = "name a file" if is_file else "name one, such as . for the working directory"
        raise ValueError(f"{called} must be a path, got ''; {way}")
    if option.kind is Path and "\0" in text:
        raise ValueError(f"{called} must be a path, got {text!r}, and no path has the character NUL; leave it out")
    if option.kind is bool:
        if text not in ("True", "False"):
            raise ValueError(f"{option.flag} must be {_VALUE_KINDS[bool]}, got {text!r}; write one of them")
        return text == "True"
    try:
        return option.kind(text)
    except ValueError:
        kind = _VALUE_KINDS[option.kind]
        way_out = f"write it in digits, such as {_digits(text)}"
        raise ValueError(f"{called} must be {kind}, got {text!r}; {way_out}") from None


def _digits(text: str) -> str:
    """The nearest whole number in digits, or 10 if the text is no number."""
    with contextlib.suppress(ValueError, OverflowError):
        if abs(whole := int(float(text))) < 1 << 53:  # a larger float is not the number that was typed
            return str(whole)
    return "10"


def _positional_values(prog: str, options: Sequence[Option], words: Sequence[str]) -> dict[str, Any]:
    """The values of the positional arguments."""
    required = [option.metavar(None) for option in options if option.required]
    if len(words) < len(required):
        raise ValueError(
            f"{required[len(words)]} is missing: {prog} {' '.join(required)}; {prog} --help lists the options"
        )
    if len(words) > len(options) and all(option.count is not None for option in options):
        limit = f"{len(options)} word{'' if len(options) == 1 else 's'}" if options else "no words"
        way = "quote a text that has spaces" if options else f"give {words[0]!r} behind an option; --help lists them"
        raise ValueError(f"{prog} takes {limit} beside its options, got {len(words)}; {way}")
    values = {}
    rest = list(words)
    for option in options:
        texts, rest = (rest, []) if option.count is None else (rest[:1], rest[1:])
        if texts:
            values[option.name] = _convert(option, texts)
    return values


def _models(table: Sequence[Option], sections: Mapping[str, type]) -> tuple[str, dict[str, type]]:
    """The section that has models to choose from, and the models by name."""
    keys = [option.section for option in table if option.section and option.name == "model"]
    return next(((key, models) for key in keys if (models := models_of(sections[key]))), ("", {}))


def _model_name(models: Mapping[str, type], args: Sequence[str], defaults: Mapping[str, Any], section: type) -> str:
    """The model that is typed, or that an option chooses, or that of the defaults, or the first; the options of models
    depend on it.
    """
    name = defaults.get("model", {}).get("name", next(iter(models)))
    typed = {flag: texts for flag, texts in _split(args, lambda flag: 1) if texts}
    chosen_by: Mapping[str, str] = getattr(section, "chosen_by", {})
    for option, model in chosen_by.items():
        name = model if dashed(option) in typed else name
    name = typed.get("--model", [name])[0]
    known("--model", name, models)
    return str(name)


def _model_defaults(
    named: Mapping[str, Option], table: Sequence[Option], model: str, defaults: Mapping[str, Any], file: Any
) -> dict[str, Any]:
    """The defaults of the options of a model; those of another model are kept if this one has the option too."""
    values = dict(defaults.get("model", {})) if model else {}
    owner = values.pop("name", model)
    # an option of another model that is None says nothing
    values = {n: value for n, value in values.items() if value is not None or named[n].model in ("", model)}
    if owner != model:
        foreign = [name for name in values if named[name].model not in ("", model)]
        values = {name: value for name, value in values.items() if name not in foreign}
        if foreign and is_main_process():
            verbs = ("belongs", "is") if len(foreign) == 1 else ("belong", "are")
            note(f"{', '.join(foreign)} of {file} {verbs[0]} to model {owner} and {verbs[1]} left out")
    for name, value in values.items():
        texts = [str(each) for each in (value if isinstance(value, tuple) else [value])]
        _check_owner(named[name], texts, table, model)
    return values


def _without_replaced(
    values: Mapping[str, Any], named: Mapping[str, Option], defaults: Mapping[str, Any], sections: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The defaults without those that a typed option excludes or decides anew, as the sections know."""
    model = defaults.get("model", {})
    flat = {**defaults, **model, "model": model.get("name")}
    hooks = [section.replaced for section in sections.values() if hasattr(section, "replaced")]
    dropped: set[str] = set()
    for name, value in values.items():
        # an option that repeats the file changes nothing; one of the command itself hides that of the file
        if value in (None, ()) or (named[name].section and value == flat.get(name)):
            continue
        candidates = [other for hook in hooks for other in hook(name, value, flat)]
        replaced = [other for other in candidates if other not in values and flat.get(other) not in (None, ())]
        if replaced and is_main_process():
            note(f"{dashed(name)} replaces {', '.join(replaced)} of {values.get('config', 'the file')}")
        dropped |= set(replaced)
    kept = {name: value for name, value in defaults.items() if name not in dropped}
    return kept | ({"model": {n: value for n, value in model.items() if n not in dropped}} if model else {})


def _check_owner(option: Option, texts: Sequence[str], table: Sequence[Option], model: str) -> None:
    """Raises for an option that only other models have."""
    if option.model not in ("", model):
        owners = " or ".join(each.model for each in table if each.name == option.name)
        raise ValueError(
            f"{' '.join([option.flag, *texts])} belongs to --model {owners}, not to {model}; "
            "leave it out or choose the other model"
        )
