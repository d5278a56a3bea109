"""The sentences with which a training ends: its last event, the baselines, or the error of a loss that diverged."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.training.config import TrainingConfig, lasting
from regard.training.events import Stopped
from regard.training.protocol import BaselineReport, TrainingProblem
from regard.training.state import TrainingState
from regard.training.step import Diverged


def diverged(
    error: Diverged,
    problem: TrainingProblem[Any, Any],
    step: int,
    epoch: int,
    planned: Sequence[Any],
    saved: int,
    training: TrainingConfig,
) -> str:
    """The step, its batches and ways out; `saved` is the step of the last checkpoint, 0 if there is none."""
    where = f"the checkpoint of step {saved} is unchanged" if saved else "there is no checkpoint yet"
    clip = "with a clip such as clip=1.0" if training.clip is None else f"a smaller clip than {training.clip:g}"
    return (
        f"step {step} in epoch {epoch} has {error}, on {problem.locate(planned)}; {where}: fix the data and train "
        f"again, or {'resume' if saved else 'start over'} with a smaller lr than {training.lr:g} or {clip}"
    )


def stopped(
    reason: str, nothing_left: bool, state: TrainingState, steps: int | None, training: TrainingConfig, run: Path
) -> Stopped:
    """The last event."""
    step = state.step
    position = f"step {step}" if steps is None else f"step {step} of {steps}"
    if reason == "interrupted":
        return Stopped(step, "interrupted", f"interrupted after {position}; go on with --resume {run}")
    minutes = training.minutes or 0.0
    ends = {"steps": training.steps, "epochs": training.epochs}
    limits = " or ".join(f"{name}={end:.10g}" for name, end in ends.items() if end is not None)
    cause, way_out = {
        "done": (f"{position} is done", f"raise {limits}"),
        "minutes": (
            f"{lasting(minutes)} {'has' if minutes == 1 else 'have'} passed, at {position}",
            f"raise minutes={minutes:g}",
        ),
        "patience": (
            f"{state.bad} validations in a row brought no improvement, at {position}",
            f"raise patience={training.patience}",
        ),
    }[reason]
    if nothing_left:
        return Stopped(step, "nothing left", f"nothing is left to train: {cause}; {way_out} to go on")
    return Stopped(step, reason, cause)  # type: ignore[arg-type]


def baseline_sentences(report: BaselineReport, score: float) -> Sequence[str]:
    """The scores of the baselines beside that of the best weights, and advice if one of them is not beaten."""
    sign = 1 if report.higher_is_better else -1
    listed = ", ".join(f"{name} {value:.2f}" for name, value in report.scores.items())
    lines = [f"Baselines on the same data, {report.metric}: {listed}; the model {score:.2f}."]
    name, value = max(report.scores.items(), key=lambda item: sign * item[1])
    # percentages of right answers, and of errors; there is no advice to beat such a score
    if score == value == (100.0 if report.higher_is_better else 0.0):
        lines.append(f"The {name} makes no error either: these data are too easy to tell them apart.")
    elif sign * score <= sign * value:
        advice = f"; try {report.advice}" if report.advice else "; train it longer, or on more data"
        lines.append(f"The model does not beat the {name}{advice}.")
    return lines
