"""A training with its events on the screen, from the folder to the exit code."""

import shlex
import sys
from pathlib import Path

from regard.cli import first, memory, say_error, sentence
from regard.cli.config import CONFIG, write
from regard.cli.progress import Screen, number, screen, watch
from regard.tasks.translate import Translate
from regard.tasks.translation import Translation
from regard.train import checkpoint
from regard.train.events import Stopped
from regard.train.fit import Diverged, fit
from regard.train.run import BEST, RECORD
from regard.train.training import Training


def train(task: Translate, run: Path, training: Training, resume: bool, command: str | None = None) -> int:
    """Trains, shows it, says what to do next; the exit code. `command` goes on with the run; left out, --resume."""
    named = shlex.quote(str(run))
    again = f"regard train --resume {named}" if command is None else command
    try:
        stopped = fitted(task, run, training, resume)
    except Diverged as error:
        say_error(f"{sentence(error)}: regard train --resume {named} --lr {training.lr / 2:g}")
        return 1
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
    print(stopped.text[:1].upper() + stopped.text[1:] + ".")
    if (run / BEST).exists():
        facts = checkpoint.read(run / BEST).facts
        scores = ", ".join(f"{name} {number(value)}" for name, value in facts["score"].items())
        print(f"The best weights, of step {facts['step']:,}, are in {run / BEST}: {scores}.")
    if command is None:
        print(f"Go on with: regard translate {named}, or regard evaluate {named}")
    return 0


def fitted(task: Translate, run: Path, training: Training, resume: bool) -> Stopped | None:
    """The training, shown; its last event, or None in a process that does not speak."""
    with screen(sys.stdout) as shown:
        if first():
            _tell_what_is_read(task, run, training, shown)
        stopped = watch(fit(task, run, training, resume), shown)
    if stopped is not None:
        memory.write(run)
    return stopped


def _tell_what_is_read(task: Translate, run: Path, training: Training, shown: Screen) -> None:
    """Has the task say what it has read and dropped when it does so, and write its options down beside it."""
    prepare = task.prepare

    def prepared(folder: Path) -> Translation:
        work = prepare(folder)
        shown.say(f"{run}: {work.told}")
        write(run / CONFIG, task, training)
        return work

    # an attribute hides the method; the fields, which make the task what it is, stay as they are
    object.__setattr__(task, "prepare", prepared)
