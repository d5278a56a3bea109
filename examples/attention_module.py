"""The attention module that copied tutorials print, repaired so that it runs: it reads the rows of a digit.

The print has a class of heads (a linear layer and a sigmoid) and a module with a memory cell, and trains it on MNIST
beside a network of 784-128-64-10 units. As printed it raises for nearly every shape. Repairs, in the order of the code:

1. A head has one output. The print gives it dim // heads outputs and then views them as (batch, steps).
2. Heads read "b t dim". The print flattens batch and steps, and mixes the samples in one product.
3. The memory has a row per head, memory_k + Σ_t p_tk x_t. The print sums over another axis than that of the steps.
4. The output layer reads all rows, heads · dim numbers, where the print has dim.
5. No state is None. The print passes (None, None), which is not None, and then unpacks it.
6. The module stands before the network. The print puts it behind, where ten logits meet an input of 784.
7. The loss reads the module. The print computes it from the network alone, so that the module gets no gradient.
"""

import argparse
import sys
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.models.mlp import MLP

SIDE, CLASSES = 8, 10  # of scikit-learn's digits
PASSES = 2  # over one image: the second selects by the weights of the first, as in the print


class ModuleState(NamedTuple):
    """The state after a pass."""

    memory: Tensor  # "b heads dim"
    selection: Tensor  # "b t heads", the weights of the pass


class AttentionHead(nn.Module):
    """σ(u · x_t + b): the weight of every step."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, 1)

    def forward(self, x: Tensor) -> Tensor:  # "b t dim" -> "b t"
        return torch.sigmoid(self.score(x)).squeeze(-1)


class AttentionModule(nn.Module):
    """out = W [memory_k + Σ_t w_tk x_t/T]_k + b, memory_k ← memory_k + Σ_t p_tk x_t, w_tk the weights of head k.

    p are the weights of the pass before, and the memory of the first pass is zero.
    """

    def __init__(self, dim: int, out: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = nn.ModuleList(AttentionHead(dim) for _ in range(heads))
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(heads * dim, out)

    def forward(self, x: Tensor, state: ModuleState | None = None) -> tuple[Tensor, ModuleState]:  # "b t dim"
        if state is None:
            memory = x.new_zeros(x.shape[0], len(self.heads), x.shape[2])
        else:
            memory = state.memory + state.selection.mT @ x
        weights = self.dropout(torch.stack([head(x) for head in self.heads], -1))  # "b t heads"
        read = weights.mT @ x / x.shape[1]
        return self.out((memory + read).flatten(1)), ModuleState(memory, weights)


class ModuleClassifier(nn.Module):
    """The module over the rows of an image, and the network behind it."""

    def __init__(self, heads: int = 4, dropout: float = 0.1) -> None:
        super().__init__()
        self.module = AttentionModule(SIDE, SIDE * SIDE, heads, dropout)
        self.net = MLP(1, (SIDE, SIDE), CLASSES, dropout=0.0)

    def forward(self, x: Tensor) -> Tensor:  # "b 1 h w" -> "b classes"
        state = None
        for _ in range(PASSES):
            read, state = self.module(x.squeeze(1), state)
        return self.net(read.view_as(x))


class Digits(NamedTuple):
    """Images "n 1 8 8" of unit variance and their classes; every fifth is for the test, counted from `seed`."""

    images: Tensor
    labels: Tensor
    is_test: Tensor


def digits(seed: int) -> Digits:
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(data.target)
    # within every class the images take turns
    place = torch.zeros_like(labels)
    for digit in range(CLASSES):
        places = (labels == digit).nonzero().squeeze(1)
        place[places] = torch.arange(len(places))
    return Digits((images - images.mean()) / images.std(), labels, place % 5 == seed % 5)


def train(model: nn.Module, data: Digits, epochs: int) -> float:
    """Trains by Adam on cross-entropy; the share of test images that is classified correctly, in percent."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    images, labels = data.images[~data.is_test], data.labels[~data.is_test]
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        predicted = model.eval()(data.images[data.is_test]).argmax(-1)
    return 100 * float((predicted == data.labels[data.is_test]).float().mean())


MODELS = {
    "plain network": lambda: MLP(1, (SIDE, SIDE), CLASSES, dropout=0.0),
    "printed module, repaired": ModuleClassifier,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30, help="passes over the training images (default: 30)")
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each network (default: 1)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, make in MODELS.items():
        scores = []
        for seed in range(options.seeds):
            torch.manual_seed(seed)
            scores.append(train(make(), digits(seed), options.epochs))
        print(f"{name:26} {', '.join(f'{score:.2f}' for score in scores)} % of test images", flush=True)


if __name__ == "__main__":
    sys.exit(main())
