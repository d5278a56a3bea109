"""EncoderDecoder: the base class of sequence-to-sequence models, for training, decoding and alignments."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from regard.attn import checks
from regard.attn.call import NOTHING, Need
from regard.decoding.protocol import Step
from regard.layers.rnn.decoder_base import DecoderOutput


class EncoderDecoder(nn.Module, ABC):
    """p(y | x) = Π_t p(y_t | y_<t, x).

    `teacher_force` runs over a known target; `init_state` and `step` decode one token at a time, n hypotheses for each
    of b sentences, with a state that is a value: `state.reorder(index)` selects hypotheses,
    `state.select_sentences(index)` sentences.
    """

    output: nn.Linear

    @property
    def attends(self) -> bool:
        """Whether target tokens attend to the source."""
        return True

    @abstractmethod
    def teacher_force(self, source: Tensor, lengths: Tensor, target: Tensor, need: Need = NOTHING) -> DecoderOutput:
        """The inputs of the vocabulary layer at every step: "b s", "b", "b t" -> "b t d"; the target starts with
        BOS.
        """

    @abstractmethod
    def init_state(self, source: Tensor, lengths: Tensor, hypotheses: int = 1) -> Any:  # "b s", "b"
        """The state before the first step, with one hypothesis per sentence.

        `hypotheses` is roughly the number of hypotheses per sentence. It changes no result, only what is precomputed.
        """

    @abstractmethod
    def step(self, tokens: Tensor, state: Any, weights: bool = False) -> Step:  # "b n" -> "b n v"
        """The logits of the token after these, and the next state."""

    def logits(self, states: Tensor) -> Tensor:  # "… d" -> "… v"
        return self.output(states)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:  # "b s", "b", "b t" -> "b t v"
        return self.logits(self.teacher_force(source, lengths, target).states)


TIED = ("none", "target", "all")


def embeddings(
    source_size: int, target_size: int, width: int, tied: str, padding: int
) -> tuple[nn.Embedding, nn.Embedding, nn.Linear]:
    """The embeddings of source and target and the vocabulary layer; `tied` says which share a matrix  (Press & Wolf
    2017).
    """
    checks.known("tied", tied, TIED)
    if tied == "all" and source_size != target_size:
        raise ValueError(
            f"tied='all' shares one vocabulary, got {source_size} words of the source and {target_size} of the target; "
            "train one tokenizer on both sides, or use tied='target'"
        )
    target = nn.Embedding(target_size, width, padding_idx=padding)
    source = target if tied == "all" else nn.Embedding(source_size, width, padding_idx=padding)
    output = nn.Linear(width, target_size)
    for table in (source, target):
        nn.init.normal_(table.weight, std=width**-0.5)
        nn.init.zeros_(table.weight[padding].data)
    nn.init.zeros_(output.bias)
    if tied == "none":
        nn.init.normal_(output.weight, std=width**-0.5)
    else:
        output.weight = target.weight
    return source, target, output


def check_learned_positions(longest: int | None, side: str, tokens: int) -> None:
    """Raises if a model with this many learned positions, None: any number, cannot read this many tokens."""
    if longest is not None and tokens > longest:
        raise ValueError(
            f"the {side} has {tokens} tokens, but positions='learned' has longest={longest} positions; "
            f"shorten it, or build the model with longest={tokens}, or with positions='sinusoidal'"
        )
