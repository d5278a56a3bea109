"""The gradient by the vectors of tokens, taken at the embedding of a model."""

import torch
from torch import Tensor, nn

from regard.inference.embedding_gradient import embedding_gradient


def test_the_gradient_of_a_linear_model_is_its_weights() -> None:
    torch.manual_seed(0)
    embedding, weights = nn.Embedding(7, 3), torch.randn(5, 3)
    tokens = torch.tensor([[1, 2, 2, 6, 0]])
    read = embedding_gradient(embedding, lambda: (embedding(tokens) * weights).sum((1, 2)))
    assert torch.equal(read.tokens, tokens[0])
    assert torch.equal(read.gradient, weights)
    assert torch.equal(read.vectors, embedding.weight[tokens[0]])
    # neither are parameters touched, nor does the hook stay
    assert embedding.weight.grad is None
    assert embedding(tokens).grad_fn is not None


def test_calls_are_in_order_and_unused_vectors_have_no_gradient() -> None:
    embedding = nn.Embedding(5, 2)

    def loss() -> Tensor:
        first = embedding(torch.tensor([1, 2]))
        embedding(torch.tensor([[3], [4]]))
        return first.square().sum(-1)

    read = embedding_gradient(embedding, loss)
    assert read.tokens.tolist() == [1, 2, 3, 4]
    assert torch.equal(read.gradient[:2], 2 * embedding.weight[1:3])
    assert not read.gradient[2:].any()


def test_a_loss_without_a_graph_has_zero_gradients() -> None:
    embedding = nn.Embedding(5, 2)
    read = embedding_gradient(embedding, lambda: embedding(torch.tensor([1])).detach().sum(-1))
    assert not read.gradient.any()
