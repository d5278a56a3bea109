"""A causal language model: a decoder without a source, whose state is made from a prompt."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard import Causal, MultiHead, Rotary
from regard.attn.kv_cache import KVCache
from regard.decoding.protocol import LazyLogits, Step
from regard.layers.transformer import EncoderLayer

WIDTH, HEADS, LAYERS = 12, 3, 2


@dataclass(frozen=True, eq=False)
class LanguageModelState:
    """The keys and values of n hypotheses for each of b prompts, "b·n h t d" in every layer."""

    caches: tuple[KVCache | None, ...]
    count: int  # n

    def reorder(self, index: Tensor) -> "LanguageModelState":  # "b n2"
        """Slot j of prompt i continues the hypothesis of slot index[i, j]."""
        first = self.count * torch.arange(len(index)).unsqueeze(-1)
        return replace(self._rows((first + index).flatten()), count=index.shape[1])

    def select_sentences(self, index: Tensor) -> "LanguageModelState":  # "b2"
        """These prompts alone."""
        return self._rows((self.count * index.unsqueeze(-1) + torch.arange(self.count)).flatten())

    def _rows(self, rows: Tensor) -> "LanguageModelState":
        caches = tuple(None if cache is None else cache.reorder(rows) for cache in self.caches)
        return replace(self, caches=caches)


class LanguageModel(nn.Module):
    """p(y) = Π_t p(y_t | y_<t), by causal self-attention."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.layers = nn.ModuleList(
            EncoderLayer(
                WIDTH,
                4 * WIDTH,
                MultiHead(WIDTH, HEADS, rotate=Rotary(WIDTH // HEADS)),
                norm_first=True,
                dropout=0.0,
                activation=nn.GELU(),
            )
            for _ in range(LAYERS)
        )
        self.output = nn.Linear(WIDTH, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:  # "b t" -> "b t v"
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, Causal()).out
        return self.output(x)

    def init_state(self, prompt: Tensor) -> LanguageModelState:  # "b t"
        """The state after all tokens of a prompt but the last, which is the first token of the search."""
        state = LanguageModelState((None,) * LAYERS, 1)
        return self._extend(prompt[:, :-1], state)[1] if prompt.shape[1] > 1 else state

    def step(self, tokens: Tensor, state: LanguageModelState) -> Step:  # "b n" -> "b n v"
        x, state = self._extend(tokens.flatten().unsqueeze(1), state)
        return Step(LazyLogits.of(self.output, x.view(*tokens.shape, -1)), state)

    def _extend(self, tokens: Tensor, state: LanguageModelState) -> tuple[Tensor, LanguageModelState]:  # "b·n t"
        x, caches = self.embedding(tokens), []
        for layer, cache in zip(self.layers, state.caches, strict=True):
            x, cache, _ = layer(x, Causal(), cache=cache, use_cache=True)
            caches.append(cache)
        return x, replace(state, caches=tuple(caches))
