"""Which batches a training sees, epoch by epoch."""

from collections.abc import Sequence

from regard.training.protocol import TrainingProblem


class EpochPlan:
    """The planned batches of the present epoch, and how many the first one has."""

    def __init__(self, work: TrainingProblem, epoch: int) -> None:
        self.work = work
        self.batches = self._of(epoch)
        self.first = len(self.batches if epoch == 0 else self._of(0))

    def _of(self, epoch: int) -> Sequence[object]:
        batches = self.work.batches(epoch)
        if not len(batches):
            raise ValueError(f"epoch {epoch} has no batches; give the task training data")
        return batches

    def take(self, epoch: int, place: int, count: int) -> tuple[list[object], int, int]:
        """As many batches from this place of the present epoch on, and where the one behind them stands."""
        taken: list[object] = []
        while len(taken) < count:
            if place >= len(self.batches):
                epoch, place = epoch + 1, 0
                self.batches = ()  # those of the last epoch go before the next are made
                self.batches = self._of(epoch)
            taken.append(self.batches[place])
            place += 1
        return taken, epoch, place
