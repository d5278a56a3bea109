"""A training with its events on the screen, from the folder to the exit code."""

import shlex
import sys
from pathlib import Path

from regard.cli.main import print_error, sentence
from regard.cli.parsing.option_names import with_cli_option_names
from regard.cli.progress import screen, show_events
from regard.common.wording import number
from regard.tasks.base import TaskConfig
from regard.training import checkpoint
from regard.training.config import TrainingConfig
from regard.training.fit import Diverged, fit
from regard.training.run_folder import BEST, RECORD, SAMPLES
from regard.training.runtime.signals import terminable


def train(
    config: TaskConfig,
    run: Path,
    training: TrainingConfig,
    resume: bool,
    command: str | None = None,
    init_from: Path | None = None,
    note: str = "",
) -> int:
    """Trains with progress on the screen, prints the next command, returns the exit code.

    `command` resumes the run; None stands for `regard train --resume`. `init_from` is the run that it starts from.
    `note` is a line for the screen, once data and options are found to be in order.
    """
    quoted = shlex.quote(str(run))
    resume_command = f"regard train --resume {quoted}" if command is None else command
    try:
        with terminable(), screen(sys.stdout) as shown:
            stopped = show_events(fit(config, run, training, resume, init_from), shown, note)
    except Diverged as error:
        text = with_cli_option_names(sentence(error), [TrainingConfig])
        print_error(f"{text}: regard train --resume {quoted} --lr {training.lr / 2:g}")
        return error.exit_code
    except KeyboardInterrupt:
        if (run / RECORD).exists():
            print_error(
                f"interrupted at once: the steps since the last checkpoint are lost; resume with: {resume_command}"
            )
            return 130
        raise
    if stopped is None:
        return 0
    if stopped.reason == "interrupted":
        print(f"interrupted after step {stopped.step:,}; resume with: {resume_command}")
        return 130
    text = stopped.text
    if stopped.reason == "nothing left":
        text = with_cli_option_names(text, [TrainingConfig])
    print(text[:1].upper() + text[1:] + ".")
    if (run / BEST).exists():
        facts = checkpoint.read(run / BEST).facts
        scores = ", ".join(f"{name} {number(value)}" for name, value in facts.get("score", {}).items())
        print(f"The best weights, of step {facts['step']:,}, are in {run / BEST}: {scores}.")
    for note in stopped.notes:
        print(note)
    if (samples := run / SAMPLES / f"{stopped.step}.png").exists():
        print(f"Samples of the model are in {samples}.")
    if command is None:
        print(f"Next: {config.next_command(quoted)}, or regard evaluate {quoted}")
    return 0
