"""The trainings of a comparison in this process: torch is imported once."""

import contextlib
import sys

from regard.cli.main import main


def train_in_process(args: list[str]) -> int:
    """Takes the place of `regard.experiments.comparison._process`; a training prints on stderr, as its process does."""
    with contextlib.redirect_stdout(sys.stderr):
        return main(args)
