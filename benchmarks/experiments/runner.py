"""Trains and evaluates the variants of an experiment; the values of a run are kept in RUN/scores.json."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from benchmarks.experiments.experiment import Experiment, Inputs, function
from benchmarks.training import Say, cpu_seconds, train
from regard.tasks.loading import LoadedRun, load_run
from regard.training import checkpoint
from regard.training.config import TrainingConfig
from regard.training.run_folder import BEST, LAST

SCORES = "scores.json"


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """One training of a variant, and its values: scores, facts, parameters, step, CPU seconds.

    A function that adds values gets a run with those of its evaluations.
    """

    variant: str
    seed: int
    folder: Path
    config: Any
    training: TrainingConfig
    weights: Any
    values: dict[str, Any]

    @cached_property
    def loaded(self) -> LoadedRun:
        return load_run(self.folder, self.weights, "cpu")

    @property
    def predictor(self) -> Any:
        return self.loaded.predictor


@dataclass(frozen=True)
class Runner:
    """Runs the trainings of an experiment one after the other; those that have scores are not repeated."""

    experiment: Experiment
    inputs: Inputs
    runs: Path
    say: Say
    report: bool = False  # evaluate the runs that are there, at whatever step

    def folder(self, variant: str, seed: int) -> Path:
        name = re.sub(r"[^\w.=+-]+", "-", f"{variant}-{seed}".strip("-"))
        return self.runs / self.experiment.name / name

    def trained(self, seeds: int | None = None) -> Iterator[TrainedRun]:
        """All scored runs, seed by seed; `seeds` replaces the numbers of the experiment."""
        torch.set_num_threads(1)
        variants = self.experiment.variants
        numbers = {name: seeds or each.seeds or self.experiment.seeds for name, each in variants.items()}
        for seed in range(max(numbers.values())):
            for name, variant in variants.items():
                if seed < numbers[name]:
                    run = self.train(name, seed)
                    if variant.scored and run is not None:
                        yield run

    def train(self, name: str, seed: int) -> TrainedRun | None:
        """Trains, unless the run is finished, and evaluates; None if a report finds no weights."""
        experiment, variant, folder = self.experiment, self.experiment.variants[name], self.folder(name, seed)
        config = experiment.config(name, seed, self.inputs)
        training = experiment.training_of(name, config, self.inputs.changes)
        made_by = json.loads(json.dumps({"task": config.to_json(), "training": asdict(training)}, default=str))
        kept = json.loads((folder / SCORES).read_text(encoding="utf-8")) if (folder / SCORES).exists() else {}
        label = f"{experiment.name}, {name or 'seed'} {seed}"
        run = TrainedRun(name, seed, folder, config, training, experiment.weights, kept.get("values", {}))
        if kept and (self.report or kept["made_by"] == made_by):
            self.say(f"{label}: scores are kept in {folder}")
            return run
        if not self.report:
            init_from = self.folder(variant.init, seed) if variant.init else None
            goal = experiment.goal_of(config, self.inputs.changes)
            train(label, config, training, folder, self.say, init_from, goal)
        elif not (folder / BEST).exists():
            return None
        if not variant.scored:
            return run
        parameters = sum(p.numel() for p in run.predictor.model.parameters())
        run.values.update(self.values(run), parameters=parameters)
        if experiment.values:
            run.values.update(function(experiment.values)(run))
        text = json.dumps({"made_by": made_by, "values": run.values}, ensure_ascii=False, default=str)
        (folder / SCORES).write_text(text, encoding="utf-8")
        self.say(f"{label}: " + ", ".join(f"{key} {each:.4g}" for key, each in run.values.items() if is_number(each)))
        return replace(run, values=json.loads(text)["values"])

    def values(self, run: TrainedRun) -> dict[str, Any]:
        """The values of all evaluations; those of a named one are nested."""
        experiment, values = self.experiment, dict[str, Any]()
        for name, options in experiment.evaluate.items():
            evaluation = run.config.load().evaluate(
                run.predictor, run.folder, type(run.config).Evaluate(**options), lambda done, count: None
            )
            facts = {"count": evaluation.count, "intervals": dict(evaluation.intervals)}
            found = {**evaluation.facts, **evaluation.scores, **facts}
            values |= {name: found} if name else found
        values |= {"cpu": cpu_seconds(run.folder), "step": checkpoint.read(run.folder / BEST).facts["step"]}
        if experiment.goal:
            goal = experiment.goal_of(run.config, {})
            score = checkpoint.read(run.folder / BEST).facts["score"][experiment.goal["score"]]
            values["reached"] = float(goal is not None and goal.is_reached(score))
        if (run.folder / LAST).exists():
            values["steps"] = checkpoint.read(run.folder / LAST).facts["step"]
        return values


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
