"""A decoder small enough to be searched by hand: what may follow depends on the sentence and on every token before."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.decoding.protocol import Hypothesis, LazyLogits, Step

PLACES = 997
BOS, EOS = 1, 2
SENTENCES, LIMITS = [3, 5, 8, 13, 21, 34, 55], [1, 9, 4, 11, 2, 13, 7]


class Standing(NamedTuple):
    """The place in the table of each hypothesis, and the sentence's length."""

    place: Tensor  # "b n"
    lengths: Tensor  # "b"

    def reorder(self, index: Tensor) -> "Standing":
        return self._replace(place=self.place.gather(1, index))

    def select_sentences(self, index: Tensor) -> "Standing":
        return Standing(self.place[index], self.lengths[index])


@dataclass
class Toy:
    """Logits and weights are read from random tables at a place that is a hash of the whole prefix."""

    logits: Tensor  # "PLACES v"
    energies: Tensor  # "PLACES s"
    seen: list[tuple[int, ...]] = field(default_factory=list)  # the shape of tokens at each step
    read: dict[tuple[int, int], tuple[list[float], list[float]]] = field(default_factory=dict)  # what `alone` looked up

    @staticmethod
    def random(v: int, seed: int, sharp: float = 1.5, dtype: torch.dtype = torch.float64) -> "Toy":
        made = torch.Generator().manual_seed(seed)
        return Toy(
            (sharp * torch.randn(PLACES, v, generator=made, dtype=torch.float64)).to(dtype),
            2 * torch.randn(PLACES, 5, generator=made, dtype=torch.float64).to(dtype),
        )

    def init_state(self, sentences: list[int], lengths: list[int] | None = None) -> Standing:
        place = torch.tensor(sentences).unsqueeze(1) * 101 % PLACES
        return Standing(place, torch.tensor(lengths or [5] * len(sentences)))

    def step(self, tokens: Tensor, state: Standing, weights: bool = False) -> Step:
        self.seen.append(tuple(tokens.shape))
        assert tokens.shape == state.place.shape
        place = (31 * state.place + 7 * tokens + 3) % PLACES
        there = torch.arange(self.energies.shape[1], device=tokens.device) < state.lengths[:, None, None]
        looked = self.energies[place].masked_fill(~there, -torch.inf).softmax(-1)
        return Step(self.logits[place], state._replace(place=place), looked if weights else None)

    def alone(self, sentence: int, tokens: tuple[int, ...], length: int = 5) -> tuple[float, float]:
        """log p of the tokens, EOS written out, and Σ log min(Σ a, 1): plainly, one after the other."""
        place, before, total, covered = sentence * 101 % PLACES, BOS, 0.0, [0.0] * length
        for token in tokens:
            place, before = (31 * place + 7 * before + 3) % PLACES, token
            log_p, looked = self._at(place, length)
            total += log_p[token]
            covered = [c + a for c, a in zip(covered, looked, strict=True)]
        return total, sum(math.log(min(max(c, 1e-4), 1.0)) for c in covered)

    def _at(self, place: int, length: int) -> tuple[list[float], list[float]]:
        if (place, length) not in self.read:
            logits, energies = self.logits[place].tolist(), self.energies[place, :length].tolist()
            whole = math.log(sum(map(math.exp, logits)))
            energy = sum(map(math.exp, energies))
            self.read[place, length] = [x - whole for x in logits], [math.exp(e) / energy for e in energies]
        return self.read[place, length]


@dataclass
class Spoken(Toy):
    """The tables hold states, and a vocabulary layer is left to make logits of them."""

    layer: torch.nn.Linear = field(default_factory=lambda: torch.nn.Linear(7, 301))

    def step(self, tokens: Tensor, state: Standing, weights: bool = False) -> Step:
        made = super().step(tokens, state, weights)
        assert isinstance(made.logits_or_lazy, Tensor)
        return made._replace(logits_or_lazy=LazyLogits.of(self.layer, made.logits_or_lazy))


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
    toy: Toy, sentence: int, limit: int, size: int, alpha: float, beta: float, length: int = 5
) -> list[tuple[tuple[int, ...], float]]:
    """The same beam in lists and loops, for one sentence and always to the limit: all that ended, and its score."""
    v = toy.logits.shape[1]
    greedy: tuple[int, ...] = ()
    kept, ended = [greedy], []
    for _ in range(limit):
        log_p = {(*said, i): toy.alone(sentence, (*said, i), length)[0] for said in kept for i in range(v)}
        led = greedy in kept
        if led:
            greedy = max(((*greedy, i) for i in range(v)), key=log_p.__getitem__)
        rest = sorted((said for said in log_p if not (led and said == greedy)), key=lambda said: -log_p[said])
        going = [said for said in rest if said[-1] != EOS][: size - 1]
        worst = log_p[going[-1]] if 0 < size - 1 == len(going) else math.inf if size == 1 else -math.inf
        ended += [said for said in rest if said[-1] == EOS and log_p[said] >= worst]
        if led:
            (ended if greedy[-1] == EOS else going).append(greedy)
        kept = going
    scored = [(said, score(*toy.alone(sentence, said, length), len(said), alpha, beta)) for said in ended + kept]
    return sorted(scored, key=lambda one: -one[1])


def said(found: Hypothesis) -> tuple[int, ...]:
    """The tokens with EOS, where it was reached."""
    return (*found.tokens, EOS) if found.finished else found.tokens


def go(search: Callable[..., Any], toy: Any, sentences: list[int], limits: list[int], **options: Any) -> Any:
    return search(toy, toy.init_state(sentences), bos=BOS, eos=EOS, limits=torch.tensor(limits), **options)


class Always:
    """The same logits, one tensor, for whoever asks."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits  # "v"

    def init_state(self, sentences: list[int]) -> Standing:
        return Standing(torch.zeros(len(sentences), 1, dtype=torch.long), torch.ones(len(sentences)))

    def step(self, tokens: Tensor, state: Standing, weights: bool = False) -> Step:
        return Step(self.logits.expand(*tokens.shape, -1), state)
