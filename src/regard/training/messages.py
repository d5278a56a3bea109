"""What fit says when it ends, well or not."""

from collections.abc import Sequence
from pathlib import Path

from regard.training.config import TrainingConfig, lasting
from regard.training.events import Stopped
from regard.training.protocol import Names, TrainingProblem
from regard.training.state import TrainingState
from regard.training.step import Diverged


def brief(planned: Sequence[object]) -> str:
    said = ", ".join(" ".join(repr(item).split()) for item in planned)
    return said if len(said) <= 300 else said[:300] + "…"


def diverged(
    found: Diverged,
    work: TrainingProblem,
    step: int,
    epoch: int,
    planned: Sequence[object],
    saved: int,
    training: TrainingConfig,
) -> str:
    """`saved` is the step of the last checkpoint, 0 if there is none."""
    batch = work.named(planned) if isinstance(work, Names) else f"batch {brief(planned)}"
    where = f"the checkpoint of step {saved} is as before" if saved else "there is no checkpoint yet"
    clip = "with a clip such as clip=1.0" if training.clip is None else f"a smaller clip than {training.clip:g}"
    return (
        f"step {step} in epoch {epoch} has {found}, on {batch}; {where}: mend the data and train anew, or "
        f"{'resume' if saved else 'start over'} with a smaller lr than {training.lr:g} or {clip}"
    )


def stopped(
    reason: str, nothing: bool, progress: TrainingState, steps: int | None, training: TrainingConfig, run: Path
) -> Stopped:
    """The last event."""
    step = progress.step
    of = f"step {step}" if steps is None else f"step {step} of {steps}"
    if reason == "interrupted":
        return Stopped(step, "interrupted", f"interrupted after {of}; go on with --resume {run}")
    minutes = training.minutes or 0.0
    ends = {"steps": training.steps, "epochs": training.epochs}
    given = " or ".join(f"{name}={end:.10g}" for name, end in ends.items() if end is not None)
    said, way = {
        "done": (f"{of} is done", f"raise {given}"),
        "minutes": (
            f"{lasting(minutes)} {'has' if minutes == 1 else 'have'} passed, at {of}",
            f"raise minutes={minutes:g}",
        ),
        "patience": (
            f"{progress.bad} validations in a row brought no improvement, at {of}",
            f"raise patience={training.patience}",
        ),
    }[reason]
    if nothing:
        return Stopped(step, "nothing left", f"nothing is left to train: {said}; {way} to go on")
    return Stopped(step, reason, said)  # type: ignore[arg-type]
