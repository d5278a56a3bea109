"""The vectors of the tokens of an input: replacing them, and the gradients with respect to them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.common.uncompiled import uncompiled


class EmbeddedTokens(NamedTuple):
    """One call of an embedding: the tokens that it read, and the vectors that stand for its output."""

    tokens: Tensor  # "..."
    vectors: Tensor  # "... d", a leaf


class TokenGradient(NamedTuple):
    """The tokens that a model embedded, in the order of its calls, their vectors, and the gradients of these."""

    tokens: Tensor  # "n"
    vectors: Tensor  # "n d"
    gradient: Tensor  # "n d"


# takes the embedding that was called, its arguments and its output, and returns the vectors in place of the output
OutputEdit = Callable[[nn.Module, tuple[Any, ...], Tensor], Tensor]


@contextmanager
def edited_outputs(embeddings: Sequence[nn.Module], edit: OutputEdit) -> Iterator[None]:
    """Puts other vectors in place of the outputs of embeddings while the block runs; compiled models run uncompiled."""
    with ExitStack() as exits:
        exits.enter_context(uncompiled())
        for embedding in embeddings:
            exits.callback(embedding.register_forward_hook(edit).remove)
        yield


def embedding_gradient(embedding: nn.Module, loss: Callable[[], Tensor]) -> TokenGradient:
    """The gradient of the sum of `loss()`, which embeds tokens by this layer; zero by vectors that it does not read.

    Gradients of parameters are neither computed nor changed.
    """
    calls: list[EmbeddedTokens] = []

    def replace_by_leaf(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        calls.append(EmbeddedTokens(inputs[0], output.detach().requires_grad_()))
        return calls[-1].vectors

    with torch.enable_grad(), edited_outputs([embedding], replace_by_leaf):
        total = loss().sum()
        leaves = [call.vectors for call in calls]
        gradients = (
            torch.autograd.grad(total, leaves, allow_unused=True) if total.requires_grad else [None] * len(leaves)
        )
    filled = [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, gradients, strict=True)]
    tokens = torch.cat([call.tokens.flatten() for call in calls])
    return TokenGradient(
        tokens,
        torch.cat([leaf.detach().flatten(0, -2) for leaf in leaves]),
        torch.cat([gradient.flatten(0, -2) for gradient in filled]),
    )
