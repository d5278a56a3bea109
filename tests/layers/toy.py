"""A decoder small enough to be searched by hand: what may follow depends on the sentence and on every token before."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from regard.layers.search import Step

PLACES = 997
BOS, EOS = 1, 2


class Standing(NamedTuple):
    """The place in the table of each hypothesis, and the sentence's length."""

    place: Tensor  # "b n"
    lengths: Tensor  # "b"

    def reorder(self, index: Tensor) -> "Standing":
        return self._replace(place=self.place.gather(1, index))

    def keep(self, index: Tensor) -> "Standing":
        return Standing(self.place[index], self.lengths[index])


@dataclass
class Toy:
    """Logits and weights are read from random tables at a place that is a hash of the whole prefix."""

    logits: Tensor  # "PLACES v"
    energies: Tensor  # "PLACES s"
    seen: list[tuple[int, ...]] = field(default_factory=list)  # the shape of tokens at each step

    @staticmethod
    def random(v: int, seed: int, sharp: float = 1.5, dtype: torch.dtype = torch.float64) -> "Toy":
        made = torch.Generator().manual_seed(seed)
        return Toy(
            (sharp * torch.randn(PLACES, v, generator=made, dtype=torch.float64)).to(dtype),
            2 * torch.randn(PLACES, 5, generator=made, dtype=torch.float64).to(dtype),
        )

    def start(self, sentences: list[int], lengths: list[int] | None = None) -> Standing:
        place = torch.tensor(sentences).unsqueeze(1) * 101 % PLACES
        return Standing(place, torch.tensor(lengths or [5] * len(sentences)))

    def step(self, tokens: Tensor, state: Standing, weights: bool = False) -> Step:
        self.seen.append(tuple(tokens.shape))
        assert tokens.shape == state.place.shape
        place = (31 * state.place + 7 * tokens + 3) % PLACES
        there = torch.arange(self.energies.shape[1]) < state.lengths[:, None, None]
        looked = self.energies[place].masked_fill(~there, -torch.inf).softmax(-1)
        return Step(self.logits[place], state._replace(place=place), looked if weights else None)

    def alone(self, sentence: int, tokens: tuple[int, ...], length: int = 5) -> tuple[float, float]:
        """log p of the tokens, EOS written out, and Σ log min(Σ a, 1): plainly, one after the other."""
        state, before, total, covered = self.start([sentence], [length]), BOS, 0.0, torch.zeros(5).double()
        for token in tokens:
            made = self.step(torch.tensor([[before]]), state, weights=True)
            total += float(made.logits[0, 0].double().log_softmax(-1)[token])
            covered += made.weights[0, 0]
            state, before = made.state, token
        return total, float(covered[:length].clamp(1e-4, 1).log().sum())


def everything(v: int, limit: int, forbidden: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """All that can be said within the limit: what ends in EOS, and what is cut."""
    words = [i for i in range(v) if i != EOS and i not in forbidden]
    for n in range(limit):
        for said in itertools.product(words, repeat=n):
            yield (*said, EOS)
    yield from itertools.product(words, repeat=limit)


def score(log_prob: float, covered: float, length: int, alpha: float, beta: float) -> float:
    return log_prob / ((5 + length) / 6) ** alpha + beta * covered


def plain_beam(
    toy: Toy, sentence: int, limit: int, size: int, alpha: float, beta: float, nbest: int, length: int = 5
) -> list[tuple[tuple[int, ...], float]]:
    """The same beam in lists and loops, always to the limit, for one sentence: the nbest (tokens, score)."""
    v, greedy = toy.logits.shape[1], ()
    kept: list[tuple[int, ...]] = [()]
    done: list[tuple[tuple[int, ...], float]] = []

    def finish(said: tuple[int, ...]) -> None:
        done.append((said, score(*toy.alone(sentence, said, length), len(said), alpha, beta)))

    for _ in range(limit):
        leading = greedy in kept
        log_p = {(*said, i): toy.alone(sentence, (*said, i), length)[0] for said in kept for i in range(v)}
        if leading:
            greedy = max(((*greedy, i) for i in range(v)), key=lambda said: log_p[said])
            del_greedy = log_p.pop(greedy)
            assert not math.isnan(del_greedy)
        rest = sorted((said for said in log_p if said[-1] != EOS), key=lambda said: -log_p[said])[: size - 1]
        last = log_p[rest[-1]] if len(rest) == size - 1 and rest else (math.inf if size == 1 else -math.inf)
        for said, value in log_p.items():
            if said[-1] == EOS and value >= last:
                finish(said)
        if leading and greedy[-1] == EOS:
            finish(greedy)
        kept = ([greedy] if leading and greedy[-1] != EOS else []) + rest
    for said in kept:
        finish(said)
    return sorted(done, key=lambda one: -one[1])[:nbest]
