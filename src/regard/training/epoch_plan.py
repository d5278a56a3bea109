"""The planned batches of a training, epoch by epoch."""

from collections.abc import Sequence
from typing import Any

from regard.training.protocol import TrainingProblem


class EpochPlan:
    """The planned batches of the current epoch, and the number of batches in the first one."""

    def __init__(self, problem: TrainingProblem[Any, Any], epoch: int) -> None:
        self.problem = problem
        self.batches = self._plan(epoch)
        self.first_epoch_length = len(self.batches if epoch == 0 else self._plan(0))

    def _plan(self, epoch: int) -> Sequence[Any]:
        batches = self.problem.plan_epoch(epoch)
        if not len(batches):
            raise ValueError(f"epoch {epoch} has no batches; give the task training data")
        return batches

    def take(self, epoch: int, place: int, count: int) -> tuple[list[Any], int, int]:
        """The next `count` batches from this place of the current epoch on, and the epoch and place after them."""
        taken: list[Any] = []
        while len(taken) < count:
            if place >= len(self.batches):
                epoch, place = epoch + 1, 0
                self.batches = ()  # frees the last epoch's plan before the next one is made
                self.batches = self._plan(epoch)
            taken.append(self.batches[place])
            place += 1
        return taken, epoch, place
