"""python -m benchmarks.experiments NAME … [--data FOLDER] [--encoder FOLDER] [--runs FOLDER] | --list | --docs"""

import argparse
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.experiments import pages, rows
from benchmarks.experiments.experiment import Experiment, Inputs, find, function, paths
from benchmarks.experiments.runner import Runner
from benchmarks.measured import TEXT, About
from benchmarks.result import RESULTS, Result
from benchmarks.training import Unfinished


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.experiments",
        description="Train and evaluate experiments. A training that was stopped is resumed; scores are kept with it.",
    )
    made.add_argument("names", nargs="*", metavar="NAME", help="experiments; --list prints them")
    made.add_argument("--data", type=Path, metavar="FOLDER", help="the folder of published data, or the file")
    made.add_argument("--encoder", type=Path, metavar="FOLDER", help="a pretrained encoder in transformers' layout")
    made.add_argument("--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="for the runs (%(default)s)")
    made.add_argument("--only", nargs="+", metavar="VARIANT", help="only these variants; nothing is saved")
    made.add_argument("--seeds", type=int, help="trainings of every variant; nothing is saved")
    made.add_argument("--set", nargs="+", metavar="OPTION=VALUE", default=[], help="other options; nothing is saved")
    made.add_argument("--report", action="store_true", help="evaluate the runs that are there, without a training")
    made.add_argument("--list", action="store_true", help="print the experiments, and stop")
    made.add_argument("--commands", action="store_true", help="print the trainings as commands of regard, and stop")
    made.add_argument("--docs", action="store_true", help="write docs/vision.md and docs/translation.md")
    made.add_argument("--pictures", type=Path, metavar="FOLDER", default=pages.IMAGES, help="(docs/images)")
    return made


def changes(texts: Sequence[str]) -> dict[str, Any]:
    """Options that are typed as option=value; a value that is none of TOML is a text."""
    found = {}
    for text in texts:
        option, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set takes option=value, got {text!r}; try --set steps=100")
        try:
            found[option.replace("-", "_")] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[option.replace("-", "_")] = value
    return found


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS) -> int:
    parsing = parser()
    given = parsing.parse_args(arguments)
    if given.list:
        for name, path in paths().items():
            print(f"{name:28} {Experiment.read(path).title}")
        return 0
    try:
        some = [find(name) for name in given.names]
        some = some if given.only is None else [each.only(given.only) for each in some]
        inputs = Inputs(given.data, given.encoder, changes(given.set))
    except (KeyError, ValueError) as error:
        parsing.error(error.args[0])
    if not some and not given.docs:
        parsing.error("name an experiment, or --docs; --list prints the names")
    try:
        for experiment in some:
            if given.commands:
                print("\n".join(commands(experiment, inputs)))
            else:
                print("written:", run(experiment, inputs, given, results))
        if given.docs:
            print("written:", *pages.write())
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def say(text: str) -> None:
    print(text, flush=True)


def run(experiment: Experiment, inputs: Inputs, given: argparse.Namespace, results: Path) -> Path:
    """Measures an experiment; the result of another setting is written beside its runs."""
    is_whole = given.only is None and given.seeds is None and not inputs.changes
    folder = results / experiment.group if is_whole else given.runs / experiment.name
    packages = (*TEXT, *experiment.packages)
    if experiment.measure:
        found, tables, pictures = *function(experiment.measure)(inputs, given.runs / experiment.name, say), []
    else:
        runner = Runner(experiment, inputs, given.runs, say, given.report)
        scores = rows.Scores(list(runner.trained(given.seeds)))
        if not scores.runs:
            raise ValueError(f"{given.runs / experiment.name} has no run of {experiment.name}; leave out --report")
        found, tables = rows.rows(experiment, scores), rows.tables(experiment, scores)
        pictures = rows.pictures(experiment, scores, given.pictures) if is_whole else []
    for row in found:
        say(" | ".join(row.cells()))
    for line in (line for table in tables for line in table.rows):
        say(" | ".join(line))
    title, said, name = experiment.title, experiment.said, experiment.name
    about = About.now(packages)
    return Result(name, title, said, found, tables, pictures, [command(experiment)], about).write(folder)


def command(experiment: Experiment) -> str:
    has_files = experiment.files or any(variant.files for variant in experiment.variants.values())
    folders = " --data FOLDER" * bool(has_files) + " --encoder FOLDER" * experiment.encoder
    return f"python -m benchmarks.experiments {experiment.name}{folders}"


def commands(experiment: Experiment, inputs: Inputs) -> list[str]:
    """The trainings of seed 0 as commands of regard."""
    found = []
    for name, variant in experiment.variants.items():
        files = {**experiment.files, **variant.files}
        options = {**experiment.options, **files, **variant.options, **experiment.training, **variant.training}
        options |= {**({"encoder": "FOLDER"} if experiment.encoder else {}), **inputs.changes}
        words = [f"regard train {experiment.task}"]
        for option, value in options.items():
            typed = "" if value is True else " " + " ".join(map(str, value if isinstance(value, list) else [value]))
            words.append(f"--{option.replace('_', '-')}{typed}")
        found.append(" ".join([*words, f"--out runs/{name or experiment.name}"]))
    return found


if __name__ == "__main__":
    sys.exit(main())
