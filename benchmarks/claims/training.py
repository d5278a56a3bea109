"""The training of small models in memory: random batches, AdamW with a warm-up, gradients clipped."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.claims.strings import Strings

_WARMUP = 20


def minimise(
    model: nn.Module, loss: Callable[[Tensor], Tensor], *, examples: int, steps: int, batch: int, lr: float, seed: int
) -> None:
    """Lowers `loss`, a function of the numbers of a batch's examples; the rate falls linearly to zero."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / _WARMUP, (steps - step) / max(steps - _WARMUP, 1), 1.0)
    )
    model.train()
    for _ in range(steps):
        value = loss(torch.randint(examples, (batch,), generator=generator))
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()


def fit_reader(
    model: nn.Module, data: Strings, *, steps: int, batch: int, lr: float, seed: int
) -> None:  # logits "b k" of tokens "b t"
    """Trains a model that reads a string and answers its question."""

    def loss(rows: Tensor) -> Tensor:
        return F.cross_entropy(model(data.tokens[rows]), data.answers[rows])

    minimise(model, loss, examples=len(data.tokens), steps=steps, batch=batch, lr=lr, seed=seed)


@torch.no_grad()
def predictions(model: nn.Module, tokens: Tensor) -> Tensor:  # "n t" -> "n"
    """The likeliest answers."""
    return torch.cat([model(part).argmax(-1) for part in tokens.split(500)])
