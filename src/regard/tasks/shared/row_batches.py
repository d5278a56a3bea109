"""Training problems whose batches are rows of the training examples, each with a seed for whatever is sampled."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.text.batching import long_sample_warnings, plan_batches
from regard.training.protocol import Batch, Model, TrainingProblem


class SeededRows(NamedTuple):
    """The examples of a batch, and the seed of what is sampled for them, such as the words that are dropped."""

    seed: tuple[int, int, int]
    rows: NDArray[np.int64]  # "b"


class RowProblem(TrainingProblem[Model, Batch]):
    """A problem that plans batches as rows of its training examples."""

    config: Any  # the options of the task: its batch, seed and dataset_label

    @abstractmethod
    def plan_rows(self, epoch: int) -> Sequence[NDArray[np.int64]]:  # "b" each
        """The rows of every batch of an epoch."""

    @abstractmethod
    def load_rows(self, rows: NDArray[np.int64], rng: np.random.Generator) -> Batch:  # "b"
        """The batch of these rows."""

    @abstractmethod
    def describe_rows(self, rows: NDArray[np.int64]) -> str:  # "b"
        """The number of these rows and the first of them, for an error message."""

    def plan_epoch(self, epoch: int) -> Sequence[SeededRows]:
        return [SeededRows((self.config.seed, epoch, n), rows) for n, rows in enumerate(self.plan_rows(epoch))]

    def load_batch(self, planned: SeededRows, rank: int, world: int) -> Batch | None:
        rows = planned.rows[rank::world]
        return self.load_rows(rows, np.random.default_rng([*planned.seed, rank])) if len(rows) else None

    def locate(self, planned: Sequence[SeededRows]) -> str:
        return self.describe_rows(np.concatenate([each.rows for each in planned]))


class BatchedByLength(RowProblem[Model, Batch]):
    """A problem whose batches hold examples of similar lengths, as many as `config.batch` tokens allow."""

    @abstractmethod
    def lengths(self) -> Sequence[NDArray[np.integer]]:  # "n" each
        """The lengths of every sequence of the training examples."""

    def plan_rows(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        return plan_batches(self.lengths(), self.config.batch, self.config.seed, epoch)

    def warnings(self) -> Sequence[str]:
        return long_sample_warnings(self.lengths(), self.config.batch)
