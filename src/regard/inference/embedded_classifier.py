"""EmbeddedClassifier: the protocol of a classifier of texts that is differentiable in the vectors of its tokens.

tokens = predictor.encode_tokens(["a good film"])
calls = token_gradients(predictor, tokens, [0]).calls          the logit of class 0 by the vectors of all tokens
at_places([call.gradient for call in calls], predictor.vector_places(tokens)[0])     "n d", one row per token
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from regard.common.eval_mode import eval_mode
from regard.inference.embedding_gradient import edited_outputs
from regard.recording.recording import Recording

Value = TypeVar("Value")


@dataclass(frozen=True)
class TokenInput:
    """A text, or several, as the tokens that a model reads, in their order."""

    names: tuple[str, ...]  # for display, and what a model of whole words reads
    ids: tuple[int, ...]  # rows of the embedding
    is_special: tuple[bool, ...]  # tokens of no text, such as [CLS], which stay when others are left out
    sizes: tuple[int, ...]  # tokens per sentence, or per text of a pair
    types: tuple[int, ...]  # one type per token; 0 where there are none

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def words(self) -> tuple[int, ...]:
        """The places of the tokens that are not special."""
        return tuple(n for n, special in enumerate(self.is_special) if not special)

    def without(self, places: Collection[int]) -> "TokenInput":
        """The same without the tokens at these places."""
        kept = [n for n in range(len(self)) if n not in places]
        sizes, start = [], 0
        for size in self.sizes:
            sizes.append(sum(start <= n < start + size for n in kept))
            start += size

        def kept_of(column: tuple[Value, ...]) -> tuple[Value, ...]:
            return tuple(column[n] for n in kept)

        return TokenInput(
            kept_of(self.names), kept_of(self.ids), kept_of(self.is_special), tuple(sizes), kept_of(self.types)
        )

    def parts(self, column: Sequence[Any]) -> list[list[Any]]:
        """Values of the tokens, sentence by sentence or text by text."""
        parts, start = [], 0
        for size in self.sizes:
            parts.append(list(column[start : start + size]))
            start += size
        return parts


class TokenLayer(NamedTuple):
    """A layer whose output has the vector of one token per row and column, "r t d"; each call is one of several."""

    module: nn.Module
    # the row of the embedding that stands for no token; None: the vector of zeros
    padding: int | None = None

    def absent(self, vectors: Tensor) -> Tensor:  # "r t d" -> "d"
        """The vector of no token."""
        if self.padding is None:
            return vectors.new_zeros(vectors.shape[-1])
        assert isinstance(self.module, nn.Embedding)
        return self.module.weight[self.padding].detach().to(vectors)


@runtime_checkable
class EmbeddedClassifier(Protocol):
    """A classifier of tokens."""

    model: nn.Module
    classes: list[str]

    @property
    def device(self) -> torch.device: ...

    @property
    def token_layers(self) -> tuple[TokenLayer, ...]:
        """The layers that embed tokens; none if the model has no vectors of tokens."""

    def encode_tokens(self, inputs: Sequence[Any]) -> list[TokenInput]:
        """The tokens of every input."""

    def token_logits(self, tokens: Sequence[TokenInput]) -> Tensor:  # -> "b k"
        """The logits of one batch, differentiable; an input that has lost all its tokens counts as an unknown one."""

    def vector_places(self, tokens: Sequence[TokenInput]) -> list[Tensor]:  # -> "n 3" each
        """The places of the vectors of all tokens: the call of a token layer, and the row and column in its output.

        Calls ascend.
        """

    def token_recording(self, recording: Recording, tokens: TokenInput) -> Recording:
        """The recording of one input as maps whose columns are its tokens; others are left out."""

    @property
    def reading_row(self) -> int | tuple[int, ...] | None:
        """The token, or tokens, whose state the classes are read from, in models whose tokens attend; None: all."""


@runtime_checkable
class SelectiveKeys(Protocol):
    """A classifier of which only some attention has the tokens as keys, such as a translator, which attends to its own
    output too."""

    def key_layers(self, recording: Recording, tokens: TokenInput) -> list[str]:
        """The names of the modules whose keys are the tokens, by the recording of one input."""


class EmbeddingCall(NamedTuple):
    """One call of a token layer: the vectors that the model went on with, and the gradient with respect to them."""

    layer: TokenLayer
    vectors: Tensor  # "r t d"
    gradient: Tensor  # "r t d"


class TokenGradients(NamedTuple):
    """The logits of a batch, and the calls of the token layers behind them."""

    logits: Tensor  # "b k"
    calls: list[EmbeddingCall]


# takes the number of a call, its layer and its vectors, and returns the vectors in their place
VectorEdit = Callable[[int, TokenLayer, Tensor], Tensor]


@contextmanager
def edited_vectors(classifier: EmbeddedClassifier, edit: VectorEdit) -> Iterator[None]:
    """Puts other vectors in place of those of the tokens while the block runs."""
    calls = 0
    # one hook per module, which may be the layer of both texts
    layers = {id(layer.module): layer for layer in classifier.token_layers}

    def replace_vectors(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return edit(calls - 1, layers[id(module)], output)

    with edited_outputs([layer.module for layer in layers.values()], replace_vectors):
        yield


def token_gradients(
    classifier: EmbeddedClassifier,
    tokens: Sequence[TokenInput],
    targets: Sequence[int],
    edit: VectorEdit = lambda number, layer, vectors: vectors,
    loss: Callable[[Tensor], Tensor] | None = None,
) -> TokenGradients:
    """The gradient of the logits of the targets by the vectors of all tokens of one batch, which `edit` may change.

    `loss` makes another value of the logits, "b k" -> "b", to differentiate. The gradients of the parameters are
    neither computed nor changed.
    """
    check_has_vectors(classifier)
    layers: list[TokenLayer] = []
    leaves: list[Tensor] = []

    def capture(number: int, layer: TokenLayer, vectors: Tensor) -> Tensor:
        leaf = edit(number, layer, vectors.detach()).detach().requires_grad_()
        layers.append(layer)
        leaves.append(leaf)
        return leaf

    with torch.enable_grad(), eval_mode(classifier.model), edited_vectors(classifier, capture):
        logits = classifier.token_logits(tokens)
        index = torch.tensor(list(targets), device=logits.device)
        values = logits.gather(1, index[:, None]).squeeze(1) if loss is None else loss(logits)
        gradients = torch.autograd.grad(values.sum(), leaves)
    return TokenGradients(
        logits.detach(), [EmbeddingCall(*call) for call in zip(layers, leaves, gradients, strict=True)]
    )


def reading_rows(classifier: EmbeddedClassifier) -> list[int] | None:
    """The tokens whose states the classes are read from; None: all."""
    row = classifier.reading_row
    return row if row is None else [row] if isinstance(row, int) else list(row)


def at_places(grids: Sequence[Tensor], places: Tensor) -> Tensor:  # "r t ..." each, "n 3" -> "n ..."
    """The values of the tokens at these calls, rows and columns."""
    calls, rows, columns = places.unbind(1)
    return torch.cat([grid[rows[calls == n], columns[calls == n]] for n, grid in enumerate(grids)])


def check_has_vectors(classifier: EmbeddedClassifier) -> None:
    """Raises for a model without embeddings."""
    if not classifier.token_layers:
        raise ValueError(
            f"{type(classifier.model).__name__} has no vectors of tokens, by which gradients explain; use the method "
            "leave-one-out"
        )
