"""LanguageModel: the base class of models that predict the next token, for training, evaluation and generation."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.attn.kv_cache import Segment
from regard.attn.mechanisms.latent import Latent
from regard.attn.multihead import MultiHead
from regard.attn.terms.sequence_masks import Documents
from regard.decoding.protocol import LazyLogits, Step
from regard.layers.causal_stack import CausalStack, CausalState, Memory
from regard.layers.transformer import EncoderLayer, FeedForward, GatedFeedForward
from regard.losses.vocabulary import AdaptiveSoftmax, vocabulary_loss


class LanguageModelOutput(NamedTuple):
    """The result of a language model on a text or a segment of it."""

    states: Tensor  # "b t d", the inputs of the vocabulary layer
    memory: Any  # for the next segment
    weights: tuple[Tensor, ...] = ()  # "b h t k" of every layer that attends, if requested


class LanguageModel(nn.Module, ABC):
    """p(y) = Π_t p(y_t | y_<t).

    `hidden_states` runs over a known text, whole or by segments with a memory that is a value; `init_state` and `step`
    generate one token at a time, n hypotheses for each of b prompts.

        output = model.hidden_states(tokens[:, :-1], memory)
        total, nll = model.token_loss(output.states.flatten(0, 1), tokens[:, 1:].flatten())
        prompts = prompt_batch([[5, 3, 8], [4]])
        greedy(model, model.init_state(prompts.tokens, prompts.lengths), bos=prompts.last, eos=2, limits=limits)
    """

    output: nn.Linear | AdaptiveSoftmax

    @abstractmethod
    def hidden_states(
        self, tokens: Tensor, memory: Any = None, need: Need = NOTHING, *, documents: Tensor | None = None
    ) -> LanguageModelOutput:
        """The inputs of the vocabulary layer at every token, "b t" -> "b t d", and the memory for the next segment.

        `documents` "b n" are the numbers of the documents of the tokens, preceded by those of the tokens before them,
        as many as the memory holds and one at least: a token does not depend on other documents than its own.
        """

    @abstractmethod
    def init_memory(self, keep: int | None = None) -> Any:
        """The memory before the first segment; `keep` tokens instead of the constructor's."""

    @abstractmethod
    def memory_tensors(self, memory: Any) -> Sequence[Tensor]:  # "b m d" each
        """The tensors of a memory, for a file."""

    @abstractmethod
    def memory_of(self, tensors: Sequence[Tensor]) -> Any:
        """The memory with these tensors, which `memory_tensors` returned, and the constructor's length."""

    @abstractmethod
    def init_state(self, tokens: Tensor, lengths: Tensor | None = None) -> Any:  # "b t", "b"
        """The state after these tokens, with one hypothesis per row: rows may be padded behind `lengths`."""

    @abstractmethod
    def step(self, tokens: Tensor, state: Any) -> Step:  # "b n" -> "b n v"
        """The logits of the token after these, and the next state."""

    def logits(self, states: Tensor) -> Tensor:  # "… d" -> "… v"
        return self.output(states)

    def token_loss(
        self, states: Tensor, targets: Tensor, *, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:  # "n d", "n" -> scalar, "n"
        """Σ −log p(target), to be trained, and −log p of each target; the logits are never held all at once."""
        if isinstance(self.output, AdaptiveSoftmax):
            return self.output.token_loss(states, targets, smoothing=smoothing)
        return vocabulary_loss(self.output, states, targets, smoothing=smoothing)

    def forward(self, tokens: Tensor) -> Tensor:  # "b t" -> "b t v"
        return self.logits(self.hidden_states(tokens).states)


class TransformerLanguageModel(LanguageModel):
    """A language model of an embedding, a CausalStack and a vocabulary layer."""

    stack: CausalStack

    @abstractmethod
    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:  # "b t", "t" or "b t" -> "b t d"
        """The input of the stack."""

    def init_memory(self, keep: int | None = None) -> Memory:
        return self.stack.init_memory(keep)

    def memory_tensors(self, memory: Memory) -> Sequence[Tensor]:
        return [segment.states for segment in memory if segment.states is not None]

    def memory_of(self, tensors: Sequence[Tensor]) -> Memory:
        return tuple(Segment(self.stack.memory, states) for states in tensors)

    def hidden_states(
        self,
        tokens: Tensor,
        memory: Memory | None = None,
        need: Need = NOTHING,
        *,
        documents: Tensor | None = None,
    ) -> LanguageModelOutput:
        t, mask, positions = tokens.shape[1], None, None
        if documents is not None:
            mask = document_mask(documents, t, memory_length(memory))
            if mask is not None and not (self.stack.memory or memory):
                positions = positions_in_documents(documents[:, -t:])
        x = self.embed(tokens, torch.arange(t, device=tokens.device) if positions is None else positions)
        return LanguageModelOutput(*self.stack(x, memory, mask=mask, positions=positions, need=need))

    def init_state(self, tokens: Tensor, lengths: Tensor | None = None) -> CausalState:
        x = self.embed(tokens, torch.arange(tokens.shape[1], device=tokens.device))
        return self.stack.read_prompt(x, lengths)[1]

    def step(self, tokens: Tensor, state: CausalState) -> Step:
        positions = state.next_position.expand(*state.next_position.shape[:-1], tokens.shape[1])
        states, state = self.stack.step(self.embed(tokens, positions), state)
        return Step(LazyLogits.of(self.output, states), state)


def memory_length(memory: Memory | None) -> int:
    """The number of tokens that a memory holds."""
    states = memory[0].states if memory else None
    return 0 if states is None else states.shape[-2]


def document_mask(documents: Tensor, t: int, m: int) -> Documents | None:  # "b n"
    """The mask of t tokens after m tokens of a memory; None if every row holds one document."""
    if documents.shape[1] < t + m:
        raise ValueError(
            f"documents must name those of {t} tokens and of {m} in the memory, got {documents.shape[1]} numbers; "
            f"give the last {t + m}"
        )
    ids = documents[:, documents.shape[1] - t - m :]
    return None if bool((ids == ids[:, -1:]).all()) else Documents(ids, ids[:, m:])


def positions_in_documents(documents: Tensor) -> Tensor:  # "b t" -> "b t"
    """The number of tokens of the same document before each token of the row."""
    places = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    is_first = torch.ones_like(documents, dtype=torch.bool)
    is_first[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return places - (places * is_first).cummax(1).values


def init_weights(model: nn.Module, *, residual_std: float, std: float = 0.02) -> None:
    """N(0, std) for embeddings and projections, N(0, residual_std) for those that write to the residual; biases 0.

    The parameters of scores and biases keep their own.
    """
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, MultiHead | Latent | FeedForward | GatedFeedForward):
            for linear in module.children():
                if isinstance(linear, nn.Linear):
                    nn.init.normal_(linear.weight, std=std)
                    if linear.bias is not None:
                        nn.init.zeros_(linear.bias)
    for module in model.modules():
        if isinstance(module, EncoderLayer):
            for residual in (module.attention.out, module.feed.outer):
                assert isinstance(residual, nn.Linear)
                nn.init.normal_(residual.weight, std=residual_std)
