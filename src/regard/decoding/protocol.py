"""What a decoder would say: greedily, by chance, or by beam (regard.decoding.beam), for a whole batch at once.

    found = greedy(model, model.start(source, lengths), bos=1, eos=2, limits=2 * lengths + 10)
    found[3].tokens, found[3].log_prob

The search knows a decoder by its `step` alone: n hypotheses for each of b sentences, what they share kept once a
sentence. `limits` counts predictions, the end of the sentence among them. A sentence that is done leaves the batch as
soon as that pays, and nothing is padded: what is found or drawn of a sentence does not depend on the others. Logits of
minus infinity mean "never"; NaN and plus infinity are an error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn

from regard.attn import checks
from regard.kernels.stable_topk import stable_topk
from regard.kernels.vocab_topk import Likeliest, of_logits, vocab_topk
from regard.layers.hooks import bare

# Below this share of living sentences the batch is cut down to them: copying the rest of the state then pays.
CROWDED = 3 / 4


class DecodingState(Protocol):
    """Where n hypotheses of each of b sentences stand."""

    def reorder(self, index: Tensor) -> Self:  # "b n2"
        """Slot j of sentence i continues what was slot index[i, j]."""
        ...

    def keep(self, index: Tensor) -> Self:  # "b2"
        """These sentences alone."""
        ...


class LazyLogits(NamedTuple):
    """W x + b, left to whoever reads it: a search reads little of it, and nothing of hypotheses that are given up."""

    states: Tensor  # "b n d"
    weight: Tensor  # "v d"
    bias: Tensor | None  # "v"

    @staticmethod
    def of(layer: nn.Module, states: Tensor) -> "LazyLogits | Tensor":
        """The logits of a vocabulary layer; made at once where that is more than a product, or somebody listens."""
        return LazyLogits(states, layer.weight, layer.bias) if bare(layer) else layer(states)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.states.shape[:-1], len(self.weight))

    def read(self) -> Tensor:  # "b n v"
        return nn.functional.linear(self.states, self.weight, self.bias)


class Step(NamedTuple):
    """What one step of a decoder gives."""

    said: Tensor | LazyLogits  # the logits "b n v"
    state: DecodingState
    weights: Tensor | None = None  # "b n s", where it looked, if that was asked for

    @property
    def logits(self) -> Tensor:  # "b n v"
        return self.said.read() if isinstance(self.said, LazyLogits) else self.said


class Decoder(Protocol):
    """Anything that says what may come after the last token of each hypothesis."""

    def step(self, tokens: Tensor, state: Any, weights: bool = False) -> Step:  # "b n"
        ...


@dataclass(frozen=True)
class Hypothesis:
    """A sentence that a search found."""

    tokens: tuple[int, ...]  # without BOS and EOS
    log_prob: float  # Σ log p(token) of the decoder itself, EOS included where it was reached
    score: float  # what a beam ranks by; log_prob elsewhere
    finished: bool  # EOS was reached within the limit


@torch.no_grad()
def greedy(
    decoder: Decoder, state: DecodingState, *, bos: int, eos: int, limits: Tensor, forbidden: Sequence[int] = ()
) -> list[Hypothesis]:  # limits "b"
    """y_t = argmax p(y | y_<t); of equals the lowest id."""

    def first(made: Step, going: Tensor, rows: Tensor, t: int) -> tuple[Tensor, Tensor]:
        log_p, tokens, _ = few(made, going, rows, t, eos, forbidden, 1)
        tokens, log_p = tokens.squeeze(-1), log_p.squeeze(-1)
        _check_some(log_p, going)
        return tokens, log_p

    return [one for (one,) in _follow(decoder, state, first, 1, bos, eos, limits, forbidden)]


@torch.no_grad()
def sample(
    decoder: Decoder,
    state: DecodingState,
    *,
    bos: int,
    eos: int,
    limits: Tensor,
    forbidden: Sequence[int] = (),
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    count: int = 1,
    chance: Tensor | None = None,
) -> list[list[Hypothesis]]:  # limits "b", chance "b count t" -> b lists of `count`
    """y_t ~ p(y | y_<t)^(1/temperature), cut to the top_k most probable (Fan et al. 2018), then to the fewest that hold
    top_p of what is left (Holtzman et al. 2020).

    `chance` decides: a number from 0 up to 1 for each step of each path, drawn by torch where it is left out.
    `log_prob` is that of the decoder's own distribution, not of the one it was drawn from.
    """
    checks.sizes("sample", count=count)
    checks.positive("temperature", temperature, "sample")
    if top_k is not None:
        checks.sizes("sample", top_k=top_k)
    if top_p is not None:
        checks.number("top_p", top_p, "sample")
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {top_p}; 1 keeps everything, try top_p=0.9")

    check(limits, eos, forbidden)
    wanted = (len(limits), count, int(limits.max()))
    if chance is None:
        chance = torch.rand(wanted, dtype=torch.float64, device=limits.device)
    elif tuple(chance.shape[:2]) != wanted[:2] or chance.shape[2] < wanted[2]:
        raise ValueError(
            f"chance must be (sentences, count, steps) = {wanted} at least, got {checks.shape(chance)}; "
            f"draw it by torch.rand{wanted}"
        )
    chances = chance

    def draw(made: Step, going: Tensor, rows: Tensor, t: int) -> tuple[Tensor, Tensor]:
        # all paths start from one
        log_p = log_probs(made, going, rows, t, eos, forbidden).expand(-1, count, -1)
        _check_some(log_p.amax(-1), going)
        values, ids = kept(log_p.flatten(0, 1), temperature, top_k, top_p)
        sums = values.double().exp().cumsum(-1)
        whole = sums[:, -1:]
        # below the whole even where the product rounds up to it, so that nothing of probability 0 is drawn
        point = torch.minimum(chances[rows, :, t - 1].reshape(-1, 1) * whole, whole.nextafter(torch.zeros_like(whole)))
        drawn = torch.searchsorted(sums, point, right=True)
        tokens = (drawn if ids is None else ids.gather(-1, drawn)).view(log_p.shape[:2])
        return tokens, log_p.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)

    return _follow(decoder, state, draw, count, bos, eos, limits, forbidden)


def kept(
    log_p: Tensor, temperature: float, top_k: int | None, top_p: float | None
) -> tuple[Tensor, Tensor | None]:  # "r v" -> "r k", "r k"
    """The log-probabilities that are drawn from, and their ids (None: 0, 1, …)."""
    # The largest is taken away first: then no temperature, however small, makes an infinity of it.
    heat = (log_p - log_p.amax(-1, keepdim=True)) / temperature
    ids = None
    if top_k is not None and top_k < heat.shape[-1]:
        heat, ids = stable_topk(heat, top_k)
    elif top_p is not None and top_p < 1:
        heat, ids = heat.sort(dim=-1, descending=True, stable=True)
    heat = heat.log_softmax(-1)
    if top_p is not None and top_p < 1:
        p = heat.exp()
        heat = heat.masked_fill(p.cumsum(-1) - p >= top_p, -torch.inf).log_softmax(-1)
    return heat, ids


def _follow(
    decoder: Decoder,
    state: DecodingState,
    # who is going "r n", the sentences "r", the step -> the tokens "r n" and log p of each
    choose: Callable[[Step, Tensor, Tensor, int], tuple[Tensor, Tensor]],
    count: int,
    bos: int,
    eos: int,
    limits: Tensor,
    forbidden: Sequence[int],
) -> list[list[Hypothesis]]:
    """`count` paths a sentence, each going on by itself."""
    check(limits, eos, forbidden)
    b, device = len(limits), limits.device
    rows = torch.arange(b, device=device)  # which sentence a row of the batch is
    tokens, total = torch.full((b, 1), bos, device=device), torch.zeros(b, 1, device=device)
    going = torch.ones(b, 1, dtype=torch.bool, device=device)
    said: list[tuple[Tensor, Tensor, Tensor]] = []
    for t in range(1, int(limits.max()) + 1):
        made = decoder.step(tokens, state)
        state = made.state
        tokens, log_p = choose(made, going, rows, t)
        if t == 1 and count > 1:
            state = state.reorder(torch.zeros(b, count, dtype=torch.long, device=device))
        total = total + log_p.masked_fill(~going, 0)
        said.append((rows, tokens, total))
        going = going & (tokens != eos) & (limits[rows] > t).unsqueeze(-1)
        living = going.any(-1)
        left = int(living.sum())
        if not left:
            break
        if left < CROWDED * len(rows):
            index = living.nonzero().squeeze(-1)
            state, rows, tokens, total, going = (
                state.keep(index),
                rows[index],
                tokens[index],
                total[index],
                going[index],
            )

    path = torch.full((b, count, len(said)), eos, device=device)
    log_prob = said[0][2].new_empty(b, count)
    for t, (at, token, sums) in enumerate(said):
        path[at, :, t], log_prob[at] = token, sums
    return [
        [_cut(p[:limit], eos, lp) for p, lp in zip(paths, lps, strict=True)]
        for paths, lps, limit in zip(path.tolist(), log_prob.tolist(), limits.tolist(), strict=True)
    ]


def _cut(path: list[int], eos: int, log_prob: float) -> Hypothesis:
    finished = eos in path
    return Hypothesis(tuple(path[: path.index(eos)] if finished else path), log_prob, log_prob, finished)


def log_probs(
    made: Step, alive: Tensor, rows: Tensor, t: int, eos: int, forbidden: Sequence[int]
) -> Tensor:  # alive "b n", rows "b" -> "b n v"
    """log p of every token, minus infinity for what is forbidden; not renormalised: it is the decoder's own."""
    _check_said(made, alive, eos, forbidden)
    logits = made.logits
    log_p = logits.log_softmax(-1, dtype=checks.widened(logits.dtype))
    # One NaN or plus infinity makes NaN of its whole row, so one column tells.
    broken = log_p[..., 0].isnan()
    if bool(broken.any()):
        _check_numbers(broken & alive, rows, t)
        log_p[broken] = 0  # of a sentence that is done: nobody reads it
    if forbidden:
        log_p[..., list(forbidden)] = -torch.inf
    return log_p


def few(
    made: Step, alive: Tensor, rows: Tensor, t: int, eos: int, forbidden: Sequence[int], k: int
) -> Likeliest:  # alive "b n", rows "b" -> "b n k", "b n k", "b n"
    """log p of the k most probable tokens that are not forbidden, which they are, and log p of the end.

    Hypotheses that are not alive are not looked at: all they could say has log p minus infinity.
    """
    _check_said(made, alive, eos, forbidden)
    said, every = made.said, bool(alive.all())
    rest = None if every else alive.flatten().nonzero().squeeze(1)
    states = (said.states if isinstance(said, LazyLogits) else said).flatten(0, 1)
    states = states if rest is None else states.index_select(0, rest)
    if isinstance(said, LazyLogits):
        found = vocab_topk(states, said.weight, said.bias, k, eos, forbidden)
    else:
        found = of_logits(states, k, eos, forbidden)
    if bool(found[2].isnan().any()):
        _check_numbers(_spread(found[2].isnan(), rest, alive, False), rows, t)
    log_p, tokens, end = found
    return (
        _spread(log_p, rest, alive, -torch.inf),
        _spread(tokens, rest, alive, 0),
        _spread(end, rest, alive, -torch.inf),
    )


def _spread(found: Tensor, rest: Tensor | None, alive: Tensor, fill: float) -> Tensor:  # "m …" -> "b n …"
    if rest is not None:
        found = found.new_full((alive.numel(), *found.shape[1:]), fill).index_copy_(0, rest, found)
    return found.unflatten(0, alive.shape)


def _check_said(made: Step, alive: Tensor, eos: int, forbidden: Sequence[int]) -> None:
    shape = tuple(made.said.shape)
    if len(shape) != 3 or shape[:2] != tuple(alive.shape):
        raise ValueError(
            f"decoder.step must give logits (sentences, hypotheses, vocabulary) = {(*alive.shape, 'v')}, got {shape}"
        )
    for name, token in (("eos", eos), *(("forbidden", f) for f in forbidden)):
        if not 0 <= token < shape[-1]:
            raise ValueError(f"{name} must be an id of the vocabulary, 0 to {shape[-1] - 1}, got {token}")


def _check_numbers(broken: Tensor, rows: Tensor, t: int) -> None:  # "b n", "b"
    if bool(broken.any()):
        sentence = int(rows[broken.any(-1)][0])
        raise ValueError(
            f"decoder.step gave logits with NaN or infinity for sentence {sentence} at step {t}; "
            "look for NaN in the model's parameters, or decode in float32"
        )


def _check_some(most: Tensor, going: Tensor) -> None:  # "b n" each
    if bool(((most == -torch.inf) & going).any()):
        raise impossible()


def impossible() -> ValueError:
    return ValueError(
        "every token that may come next has probability 0, so there is nothing to say; "
        "forbid fewer tokens, or let the decoder give one of the others a finite logit"
    )


def check(limits: Tensor, eos: int, forbidden: Sequence[int]) -> None:
    if not isinstance(limits, Tensor):
        raise TypeError(
            f"limits must be a tensor with one whole number a sentence, got {limits!r}; "
            "write torch.full((sentences,), 50), or 2 * lengths + 10"
        )
    if limits.ndim != 1 or limits.is_floating_point() or limits.dtype == torch.bool:
        raise TypeError(
            f"limits must be one whole number a sentence, got {limits.dtype} {checks.shape(limits)}; "
            "write torch.full((sentences,), 50), or 2 * lengths + 10"
        )
    if not len(limits):
        raise ValueError("limits is empty: there is no sentence to decode; pass one limit a sentence")
    if bool((limits < 1).any()):
        raise ValueError(f"limits must be 1 or more, got {int(limits.min())}; the end of the sentence is counted too")
    if eos in forbidden:
        raise ValueError(f"forbidden holds eos={eos}: no sentence could end; take it out of {list(forbidden)}")
