"""The masked tokens of a text: the guess of a model, and those of the baselines, for each."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from regard.common.eval_mode import eval_mode
from regard.data.text.special_tokens import SPECIAL
from regard.metrics.classification import accuracy, accuracy_interval
from regard.metrics.intervals import nats_interval
from regard.models.bert import BERTMaskedLM
from regard.tasks.masked_lm.baseline import UNSEEN, NeighbourCounts
from regard.tasks.masked_lm.data import Masking, evaluation_batches

# rows per batch
_BATCH = 16
# evaluations have masks of their own: the same ones for every run with the same text and tokens
_SEED = 15


@dataclass(frozen=True, eq=False)
class MaskedScores:
    """The tokens asked for, the guesses, and −log p of the right ones."""

    targets: NDArray[np.int64]  # "n"
    guesses: NDArray[np.int64]  # "n"
    nll: NDArray[np.float64]  # "n"
    baselines: dict[str, NDArray[np.int64]]  # "n" each

    def summary(self) -> dict[str, float]:
        """Accuracies in percent, and nats per masked token."""
        baselines = {name: accuracy(guesses, self.targets) for name, guesses in self.baselines.items()}
        return {"accuracy": accuracy(self.guesses, self.targets), "nll": float(self.nll.mean()), **baselines}

    def intervals(self) -> dict[str, tuple[float, float]]:
        guesses = {"accuracy": self.guesses, **self.baselines}
        accuracies = {name: accuracy_interval(each, self.targets) for name, each in guesses.items()}
        return {**accuracies, "nll": nats_interval(self.nll)}


def masked_log_p(
    model: BERTMaskedLM, rows: NDArray[np.int64], chosen: NDArray[np.bool_], mask: int
) -> NDArray[np.float64]:  # "b t", "b t" -> "n v"
    """log p of all tokens in place of each chosen one, which is masked."""
    device = next(model.parameters()).device
    tokens = torch.from_numpy(np.where(chosen, mask, rows)).to(device)
    states = model.encoder(tokens)[torch.from_numpy(chosen).to(device)]
    return model.output(model.head(states)).cpu().double().log_softmax(-1).numpy()


@torch.no_grad()
def score_masked(
    model: BERTMaskedLM,
    stream: NDArray[np.int32],
    masking: Masking,
    segment: int,
    counts: NeighbourCounts,
    done: Callable[[int], object] = lambda _: None,
) -> MaskedScores:  # "n"
    """Every chosen token is masked, none is left or replaced by another; each token of the stream is read once.

    `done` is called with the number of tokens that are read.
    """
    rng = np.random.default_rng(_SEED)
    targets, guesses, nll, neighbours, num_read = [], [], [], [], 0
    with eval_mode(model):
        for rows in evaluation_batches(stream, segment, _BATCH):
            chosen = masking.choose(rows, rng)
            num_read += rows.size
            done(min(num_read, len(stream)))
            if not chosen.any():
                continue
            log_p = masked_log_p(model, rows, chosen, masking.mask)
            targets.append(rows[chosen])
            nll.append(-log_p[np.arange(len(log_p)), rows[chosen]])
            guesses.append(SPECIAL + log_p[:, SPECIAL : masking.mask].argmax(-1))
            # neither a mask nor the begin or end of a row is a token of the text
            known = np.where(chosen, UNSEEN, rows)
            known[:, [0, -1]] = UNSEEN
            places = np.nonzero(chosen)
            neighbours.append((known[places[0], places[1] - 1], known[places[0], places[1] + 1]))
    if not targets:
        raise ValueError("the text has no token that the vocabulary knows, so none can be masked; give other text")
    before, behind = (np.concatenate(side) for side in zip(*neighbours, strict=True))
    return MaskedScores(
        np.concatenate(targets), np.concatenate(guesses), np.concatenate(nll), counts.guess(before, behind)
    )
