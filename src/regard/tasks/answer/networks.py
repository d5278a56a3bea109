"""AnswerNetworks: the memory networks of a run, one per task or one for all."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.models.reading.memn2n import MemN2N
from regard.tasks.answer.data import EncodedQuestions, StoryEncoder
from regard.tasks.answer.options import Answer

# questions that are scored at once
_BATCH = 256
# the weight of the loss in the choice of a restart: it decides between equal errors
_LOSS_WEIGHT = 1e-3


class AnswerNetworks(nn.Module):
    """Networks by number; those of different tasks share nothing."""

    def __init__(self, networks: Sequence[MemN2N]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    @staticmethod
    def of(config: Answer, encoders: Sequence[StoryEncoder]) -> "AnswerNetworks":
        return AnswerNetworks(
            [
                config.model.build(each.vocabulary, each.answer_words, memory=config.memory, restarts=config.restarts)
                for each in encoders
            ]
        )

    def __getitem__(self, number: int) -> MemN2N:
        network = self.networks[number]
        assert isinstance(network, MemN2N)
        return network

    def __len__(self) -> int:
        return len(self.networks)

    @torch.no_grad()
    def restart_scores(self, number: int, questions: EncodedQuestions) -> tuple[Tensor, Tensor]:  # -> "r", "r"
        """The error in percent and the mean loss of every restart of a network."""
        network = self[number]
        device = network.words.device
        wrong, loss = torch.zeros(2, network.restarts, dtype=torch.float64)
        for rows in torch.arange(len(questions)).split(_BATCH):
            targets = questions.targets(rows.numpy())
            logits = network(questions.inputs(rows.numpy()).to(device)).logits.cpu().double()  # "r b a"
            wrong += (logits.argmax(-1) != targets).sum(-1)
            # an answer that the network does not know is wrong, and has no loss
            losses = F.cross_entropy(
                logits.flatten(0, 1), targets.repeat(len(logits)), ignore_index=-1, reduction="none"
            )
            loss += losses.view(len(logits), -1).sum(-1)
        return 100 * wrong / max(1, len(questions)), loss / max(1, len(questions))

    def choose_restart(self, number: int, errors: Tensor, losses: Tensor) -> int:  # "r", "r"
        """Stores the scores of the restarts of a network; returns the number of the best one."""
        network = self[number]
        network.validation_errors.copy_(errors + _LOSS_WEIGHT * losses)
        return network.best_restart
