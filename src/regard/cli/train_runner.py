"""A training with its events on the screen, from the folder to the exit code."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from regard.cli.main import first, say_error, sentence
from regard.cli.parsing.precheck import spelled
from regard.cli.parsing.toml_config import CONFIG, write
from regard.cli.progress import number, screen, watch
from regard.tasks.registry import Kind
from regard.training import checkpoint
from regard.training.config import TrainingConfig
from regard.training.events import Event, Started, Stopped
from regard.training.fit import Diverged, fit
from regard.training.run_folder import BEST, METRICS, RECORD, SAMPLES
from regard.training.runtime import peak_memory
from regard.training.runtime.signals import terminable

# the exit code of a training whose loss is no number; 1 is Python's own, of anything that went wrong
DIVERGED = 3
# what a run leaves in its folder, beside its record and weights
_OWN = ("data.json", "tokens.json", "tokens.source.json", "tokens.target.json", "memory.json", METRICS, BEST)


def train(task: Kind, run: Path, training: TrainingConfig, resume: bool, command: str | None = None) -> int:
    """Trains, shows it, says what to do next; the exit code. `command` goes on with the run; left out, --resume."""
    named = shlex.quote(str(run))
    again = f"regard train --resume {named}" if command is None else command
    try:
        stopped = fitted(task, run, training, resume)
    except Diverged as error:
        say_error(f"{sentence(error)}: regard train --resume {named} --lr {training.lr / 2:g}")
        return DIVERGED
    except KeyboardInterrupt:
        if (run / RECORD).exists():
            say_error(f"interrupted at once: what was done since the last checkpoint is lost; go on with: {again}")
            return 130
        raise
    if stopped is None:
        return 0
    if stopped.reason == "interrupted":
        print(f"interrupted after step {stopped.step:,}; go on with: {again}")
        return 130
    told = spelled(stopped.text, [TrainingConfig]) if stopped.reason == "nothing left" else stopped.text
    print(told[:1].upper() + told[1:] + ".")
    if (run / BEST).exists():
        facts = checkpoint.read(run / BEST).facts
        scores = ", ".join(f"{name} {number(value)}" for name, value in facts["score"].items())
        print(f"The best weights, of step {facts['step']:,}, are in {run / BEST}: {scores}.")
    if (samples := run / SAMPLES / f"{stopped.step}.png").exists():
        print(f"What it makes now is in {samples}.")
    if command is None:
        print(f"Go on with: {task.next(named)}, or regard evaluate {named}")
    return 0


def fitted(task: Kind, run: Path, training: TrainingConfig, resume: bool) -> Stopped | None:
    """The training, shown; its last event, or None in a process that does not speak."""
    if not resume and first():
        _check_free(run)
    with terminable(), screen(sys.stdout) as shown:
        stopped = watch(_written(task, run, training, resume), shown)
    if stopped is not None:
        peak_memory.write(run)
    return stopped


def _check_free(run: Path) -> None:
    """A new run writes over nothing; a run that is there already is told of elsewhere."""
    if not (run / RECORD).exists():
        for name in (CONFIG, *_OWN):
            if (run / name).exists():
                raise FileExistsError(
                    f"{run} has a file {name}, which a training would write over; name another folder by --out"
                )


def _written(task: Kind, run: Path, training: TrainingConfig, resume: bool) -> Iterator[Event]:
    """The events of the training, and its options beside what it leaves in its folder."""
    for event in fit(task, run, training, resume):
        if isinstance(event, Started):
            write(run / CONFIG, task, training)
        yield event
