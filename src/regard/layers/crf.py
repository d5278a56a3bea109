"""Conditional random field over a sequence of tags, with constraints from a tag scheme.

p(y | e) = exp(start[y_1] + Σ_t e[t, y_t] + Σ_t T[y_{t-1}, y_t] + end[y_n]) / Z        (Lafferty et al. 2001)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import torch
from torch import Tensor, nn

from regard.common import checks
from regard.common.tag_schemes import TaggedSpan, TagScheme
from regard.kernels import crf
from regard.kernels.crf import compute
from regard.kernels.dispatch import values_are_readable
from regard.kernels.precision import widen
from regard.layers.crf_search import best_paths, span_probabilities


class TagPath(NamedTuple):
    """A path of tags with its probability among all paths."""

    tags: list[int]
    probability: float


@dataclass(frozen=True)
class Constraints:
    """The pairs of tags, the first tags and the last tags that a path may have: True is allowed."""

    transitions: Tensor  # "k k", from and to
    start: Tensor  # "k"
    end: Tensor  # "k"

    @staticmethod
    def from_scheme(scheme: TagScheme, *, window: bool = False) -> "Constraints":
        """The constraints of a scheme. A `window` of a longer text may begin and end inside a span."""
        tags = scheme.tags
        pairs = torch.tensor([[scheme.allows(previous, tag) for tag in tags] for previous in tags])
        start = torch.tensor([window or scheme.allows(None, tag) for tag in tags])
        return Constraints(pairs, start, torch.tensor([window or scheme.allows(tag, None) for tag in tags]))


class CRF(nn.Module):
    """log p(y | e) = score(y) − log Z over `tags` tags; transitions[i, j] is the score of tag j after tag i.

    Emissions are "b t k", tags and the boolean mask "b t". Positions with mask False, the first included, are treated
    as if they were deleted: the transition joins their neighbours, paths and spans count the others. An empty sequence
    has loss 0 and an empty path. Half-precision emissions are computed in float32, and so are the results.
    """

    allowed_transitions: Tensor
    allowed_start: Tensor
    allowed_end: Tensor

    def __init__(self, tags: int, constraints: Constraints | TagScheme | None = None) -> None:
        super().__init__()
        checks.positive_ints("CRF", tags=tags)
        self.scheme = constraints if isinstance(constraints, TagScheme) else None
        if isinstance(constraints, TagScheme):
            constraints = Constraints.from_scheme(constraints)
        self.has_constraints = constraints is not None
        if constraints is None:
            full = torch.ones(tags, tags, dtype=torch.bool)
            constraints = Constraints(full, full[0], full[0])
        for name, shape in {"transitions": (tags, tags), "start": (tags,), "end": (tags,)}.items():
            allowed = getattr(constraints, name)
            if tuple(allowed.shape) != shape or allowed.dtype != torch.bool:
                raise ValueError(
                    f"constraints must be for {tags} tags, {name} a boolean tensor of shape {shape}; got "
                    f"{allowed.dtype} of shape {checks.shape(allowed)}; build CRF for as many tags as its scheme has"
                )
            # follows from the arguments, so checkpoints leave it out
            self.register_buffer(f"allowed_{name}", allowed.clone(), persistent=False)
        self.transitions = nn.Parameter(torch.empty(tags, tags).uniform_(-0.1, 0.1))
        self.start = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))
        self.end = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))

    def loss(
        self, emissions: Tensor, tags: Tensor, mask: Tensor | None = None
    ) -> Tensor:  # "b t k", "b t", "b t" -> "b"
        """−log p(tags | emissions) of every sequence. Tags of masked positions are not read."""
        self._check(emissions, mask)
        if tags.shape != emissions.shape[:2] or tags.is_floating_point() or tags.dtype == torch.bool:
            raise ValueError(
                f"tags must be whole numbers of shape (b, t) = {tuple(emissions.shape[:2])}, got {tags.dtype} of shape "
                f"{checks.shape(tags)}; pass one tag per position"
            )
        tags = tags.long()
        if values_are_readable(tags):
            self._check_tags(tags, mask)
        return crf.nll(widen(emissions), tags, mask, self.potentials(emissions))

    @overload
    def decode(self, emissions: Tensor, mask: Tensor | None = None, k: None = None) -> list[list[int]]: ...
    @overload
    def decode(self, emissions: Tensor, mask: Tensor | None = None, *, k: int) -> list[list[TagPath]]: ...
    @torch.no_grad()
    def decode(
        self, emissions: Tensor, mask: Tensor | None = None, k: int | None = None
    ) -> list[list[int]] | list[list[TagPath]]:  # "b t k", "b t"
        """The best path of every sequence; with `k` the k best (fewer if there are fewer), with their probabilities."""
        self._check(emissions, mask)
        _check_numbers(emissions, mask)
        potentials = self.potentials(emissions)
        lengths = [emissions.shape[1]] * len(emissions) if mask is None else mask.sum(1).tolist()
        if k is None:
            path, score = crf.viterbi(widen(emissions), mask, potentials)
            self._check_paths(score)
            return [row[:length] for row, length in zip(path.tolist(), lengths, strict=True)]
        checks.positive_ints("CRF.decode", k=k)
        # a sum over a long path loses the digits of a probability in float32
        wide, scores = _double(emissions), crf.Potentials(*map(_double, potentials))
        paths, score = best_paths(wide, mask, scores, k)
        self._check_paths(score[:, 0])
        probabilities = (score - crf.nll(wide, None, mask, scores).unsqueeze(1)).exp()
        return [
            [
                # a path may be less probable than any number but 0
                TagPath(tags[:length], share)
                for tags, share, of_path in zip(*rows, strict=True)
                if of_path > -math.inf
            ]
            for *rows, length in zip(paths.tolist(), probabilities.tolist(), score.tolist(), lengths, strict=True)
        ]

    def marginals(self, emissions: Tensor, mask: Tensor | None = None) -> Tensor:  # "b t k", "b t" -> "b t k"
        """The probability of every tag at every position; zeros at masked positions. Differentiable."""
        self._check(emissions, mask)
        wide, potentials = widen(emissions), self.potentials(emissions)
        if not torch.is_grad_enabled():
            return crf.marginals(wide, mask, potentials)
        leaf = wide if wide.requires_grad else wide.detach().requires_grad_()
        return torch.autograd.grad(crf.nll(leaf, None, mask, potentials).sum(), leaf, create_graph=True)[0]

    @torch.no_grad()
    def span_marginals(
        self,
        emissions: Tensor,
        spans: Sequence[Sequence[TaggedSpan | tuple[int, int, str]]],
        mask: Tensor | None = None,
        scheme: TagScheme | None = None,
    ) -> list[list[float]]:  # "b t k", one list of (start, end, label) per sequence, "b t"
        """The probability of every span: that a path has a span of this label from start to end, and no longer one; 0
        where no path is allowed.

        `scheme` says which tags make a span; it is left out if the constraints are a TagScheme. The label O stands for
        no span at these positions.
        """
        self._check(emissions, mask)
        scheme = self.scheme if scheme is None else scheme
        if scheme is None or len(scheme.tags) != len(self.start):
            number = "none" if scheme is None else f"one of {len(scheme.tags)} tags"
            raise ValueError(f"scheme must be a TagScheme of {len(self.start)} tags, got {number}; pass scheme=")
        if len(spans) != len(emissions):
            raise ValueError(
                f"spans must be one list per sequence: got {len(spans)} for {len(emissions)} sequences; "
                "pass an empty list for a sequence without spans"
            )
        _check_numbers(emissions, mask)
        potentials = crf.Potentials(*map(_double, self.potentials(emissions)))
        return span_probabilities(_double(emissions), spans, mask, potentials, scheme)

    def potentials(self, like: Tensor) -> crf.Potentials:
        """The scores beside the emissions, -inf where the constraints forbid, in float32 or the dtype of `like`."""
        dtype = checks.accumulate_dtype(like.dtype)
        scores = (self.transitions.to(dtype), self.start.to(dtype), self.end.to(dtype))
        if not self.has_constraints:
            return crf.Potentials(*scores)
        allowed = (self.allowed_transitions, self.allowed_start, self.allowed_end)
        return crf.Potentials(*(torch.where(a, s, -torch.inf) for a, s in zip(allowed, scores, strict=True)))

    def _check(self, emissions: Tensor, mask: Tensor | None) -> None:
        checks.floating("emissions", emissions)
        if emissions.ndim != 3 or emissions.shape[-1] != len(self.start):
            raise ValueError(
                f"emissions must be (b, t, k) with k = {len(self.start)} tags, got {checks.shape(emissions)}; "
                f"project them to {len(self.start)} scores per position"
            )
        if mask is not None and (mask.dtype != torch.bool or mask.shape != emissions.shape[:2]):
            raise ValueError(
                f"mask must be boolean of shape (b, t) = {tuple(emissions.shape[:2])}, True where a position counts; "
                f"got {mask.dtype} of shape {checks.shape(mask)}; try mask.bool()"
            )

    def _check_tags(self, tags: Tensor, mask: Tensor | None) -> None:
        wrong = (tags < 0) | (tags >= len(self.start))
        if mask is not None:
            wrong = wrong & mask
        if bool(wrong.any()):
            b, t = wrong.nonzero()[0].tolist()
            raise ValueError(
                f"tags must be from 0 to {len(self.start) - 1}: tags[{b}, {t}] is {int(tags[b, t])}; mask the "
                "position, or build CRF for more tags"
            )
        if self.has_constraints:
            self._check_allowed(tags, mask)

    def _check_allowed(self, tags: Tensor, mask: Tensor | None) -> None:
        """Raises at the first gold path that breaks the constraints, whose loss would be infinite."""
        _, kept, lengths, order = compute.compact_if_needed(tags.unsqueeze(-1).float(), tags, mask)
        assert kept is not None
        b, t = kept.shape
        if t == 0 or b == 0:
            return
        steps = torch.arange(t, device=tags.device)
        broken = torch.zeros(b, t + 1, dtype=torch.bool, device=tags.device)
        broken[:, 0] = ~self.allowed_start[kept[:, 0]]
        broken[:, 1:t] = ~self.allowed_transitions[kept[:, :-1], kept[:, 1:]] & (steps[1:] < lengths.unsqueeze(1))
        broken[:, t] = ~self.allowed_end[kept.gather(1, (lengths - 1).clamp(min=0).unsqueeze(1)).squeeze(1)]
        broken &= (lengths > 0).unsqueeze(1)
        if bool(broken.any()):
            row, step = broken.nonzero()[0].tolist()
            last = int(lengths[row]) - 1
            position = min(step, last) if order is None else int(order[row, min(step, last)])
            kind = (
                "at the start" if step == 0 else "at the end" if step == t else f"after tag {int(kept[row, step - 1])}"
            )
            raise ValueError(
                f"tags[{row}, {position}] is {int(tags[row, position])}, which the constraints forbid {kind}; correct "
                "the tags, or build CRF with other constraints"
            )

    def _check_paths(self, score: Tensor) -> None:
        if bool((score == -torch.inf).any()):
            row = int((score == -torch.inf).nonzero()[0])
            raise ValueError(
                f"no path of tags is allowed for sequence {row} of the batch; allow more in constraints, and let a tag "
                "of every position have an emission above -inf"
            )

    def extra_repr(self) -> str:
        constraints = "" if not self.has_constraints else f", constraints={self.scheme.name if self.scheme else 'own'}"
        return f"{len(self.start)}{constraints}"


def _check_numbers(emissions: Tensor, mask: Tensor | None) -> None:
    """Raises for NaN and plus infinity at a position that counts: no path is best, and none has a probability."""
    wrong = ~(emissions < torch.inf)
    if not bool(wrong.any()):
        return
    wrong = wrong.any(-1) if mask is None else wrong.any(-1) & mask
    if bool(wrong.any()):
        b, t = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"emissions[{b}, {t}] has NaN or infinity; look for NaN in the model's parameters, or mask the position"
        )


def _double(t: Tensor) -> Tensor:
    """In float64, or float32 on devices that lack it."""
    return t.float() if t.device.type == "mps" else t.double()
