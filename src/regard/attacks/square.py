"""Square: a random search that asks for logits alone, and so meets models whose gradients are masked."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attacks.balls import Linf
from regard.attacks.base import Attack, Candidates
from regard.attacks.draws import Draws
from regard.attacks.victim import Victim
from regard.common import checks
from regard.inference.margins import class_margin

# queries, of 10,000, after which the squares have half the area
_HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)


@dataclass(frozen=True)
class Square(Attack):
    """Stripes of ±eps, then squares of ±eps at random places, kept if the margin falls  (Andriushchenko et al. 2020).

    `share` is the share of pixels in the first squares; they shrink along the budget of `queries`. Only inputs that the
    model gets right are attacked, and one that resists stays clean.
    """

    queries: int = 5000
    share: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive_ints("Square", queries=self.queries)
        if not isinstance(self.ball, Linf):
            raise ValueError(f"Square moves pixels by eps, in the ball Linf(), got {self.ball!r}; leave ball out")
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be more than 0 and at most 1, got {self.share:g}; try share=0.8")

    def run(self, victim: Victim, clean: Tensor, labels: Tensor, draws: Draws) -> Candidates:
        if clean.ndim != 4:
            raise ValueError(
                f"Square needs images, (images, channels, height, width), got {checks.shape(clean)}; use PGD, or "
                "reshape the inputs"
            )
        best = clean.clone()
        before = victim.passes
        margins = class_margin(victim.logits(clean), labels)
        queries = torch.full_like(labels, victim.passes - before)
        stripes = draws.uniform(clean[:, :, :1], -1.0, 1.0).sign()  # "b c 1 w"
        best = torch.where((margins < 0).view(-1, 1, 1, 1), (clean + self.eps * stripes).clamp(0.0, 1.0), best)
        generator = draws.generator(stream=1)
        for query in range(self.queries):
            # a negative margin is a class that is still right
            rows = (margins < 0).nonzero().flatten()
            if not rows.numel():
                break
            candidate = best[rows]
            if query:
                candidate = self._with_square(candidate, clean[rows], query, generator)
            new_margins = class_margin(victim.logits(candidate), labels[rows])
            better = new_margins > margins[rows] if query else torch.ones_like(rows, dtype=torch.bool)
            best[rows[better]], margins[rows[better]] = candidate[better], new_margins[better]
            queries[rows] += victim.samples
        resists = (margins < 0).view(-1, 1, 1, 1)
        return Candidates(torch.where(resists, clean, best), queries)

    def _with_square(self, best: Tensor, clean: Tensor, query: int, generator: torch.Generator) -> Tensor:
        """The images with one square of ±eps per channel, at one place for all of them."""
        _, channels, height, width = best.shape
        halvings = sum(query / self.queries * 10_000 > limit for limit in _HALVINGS)
        side = min(max(round(math.sqrt(self.share / 2**halvings * height * width)), 1), height, width)
        top, left = (int(torch.randint(n - side + 1, (1,), generator=generator)) for n in (height, width))
        signs = (2 * torch.randint(2, (channels, 1, 1), generator=generator) - 1).to(best)
        area = (slice(None), slice(None), slice(top, top + side), slice(left, left + side))
        candidate = best.clone()
        candidate[area] = (clean[area] + self.eps * signs).clamp(0.0, 1.0)
        return candidate
