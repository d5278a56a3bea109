"""Sampling from a decoder's distribution: penalties, a temperature, the top k tokens, the nucleus, a least share."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from regard.attn import checks
from regard.decoding.next_tokens import check_arguments, check_possible, log_probs
from regard.decoding.paths import Choose, PathStep, Stop, decode_paths, path_steps
from regard.decoding.protocol import Decoder, DecodingState, Hypothesis, Step
from regard.decoding.search_memory import check_search_fits
from regard.kernels.stable_topk import stable_topk

# log p, the same cut and scaled, and the sum of what comes before
_BYTES_PER_TOKEN = 4 + 4 + 8


@torch.no_grad()
def sample(
    decoder: Decoder,
    state: DecodingState,
    *,
    bos: int | Tensor,
    eos: int,
    limits: Tensor,
    forbidden: Sequence[int] = (),
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    prompts: Sequence[Sequence[int]] = (),
    count: int = 1,
    chance: Tensor | None = None,
) -> list[list[Hypothesis]]:  # bos, limits "b", chance "b count t" -> b lists of `count`
    """y_t ~ p(y | y_<t)^(1/temperature), cut to the top_k most probable (Fan et al. 2018), then to the fewest that hold
    top_p of what is left (Holtzman et al. 2020), then to those with min_p of the greatest (Nguyen et al. 2024).

    `repetition_penalty` comes first: of tokens in the prompt or in the text so far it divides positive logits and
    multiplies negative ones (Keskar et al. 2019). `prompts` are the tokens before the first sampled one, which only
    this penalty reads. `chance` decides: one number from 0 up to 1 per step of each path, sampled by torch where it is
    left out. `log_prob` is that of the decoder's own distribution, not of the one that was sampled from.
    """
    check_arguments(limits, eos, forbidden)
    choose = _choice(
        limits, eos, forbidden, temperature, top_k, top_p, min_p, repetition_penalty, prompts, count, chance
    )
    return decode_paths(decoder, state, choose, count, bos, eos, limits, forbidden)


def sample_steps(
    decoder: Decoder,
    state: DecodingState,
    *,
    bos: int | Tensor,
    eos: int | None,
    limits: Tensor,
    chance: Tensor,
    forbidden: Sequence[int] = (),
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    prompts: Sequence[Sequence[int]] = (),
    stop: Stop | None = None,
) -> Iterator[PathStep]:  # bos, limits "b", chance "b 1 t"
    """The tokens of `sample`, one step at a time; `stop` ends texts before their limit. None: no token ends a text."""
    check_arguments(limits, eos, forbidden)
    choose = _choice(limits, eos, forbidden, temperature, top_k, top_p, min_p, repetition_penalty, prompts, 1, chance)
    return path_steps(decoder, state, choose, 1, bos, eos, limits, forbidden, stop)


def _choice(
    limits: Tensor,
    eos: int | None,
    forbidden: Sequence[int],
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    repetition_penalty: float | None,
    prompts: Sequence[Sequence[int]],
    count: int,
    chance: Tensor | None,
) -> Choose:
    """The function that samples the next token of every path."""
    _check(temperature, top_k, top_p, min_p, repetition_penalty, count)
    shape = (len(limits), count, int(limits.max()))
    if chance is None:
        chance = torch.rand(shape, dtype=torch.float64, device=limits.device)
    elif tuple(chance.shape[:2]) != shape[:2] or chance.shape[2] < shape[2]:
        raise ValueError(
            f"chance must be (sentences, count, steps) = {shape} at least, got {checks.shape(chance)}; "
            f"draw it by torch.rand{shape}"
        )
    chances = chance
    penalty = None if repetition_penalty in (None, 1.0) else repetition_penalty
    if penalty is not None and len(prompts) not in (0, len(limits)):
        raise ValueError(f"prompts must be one per sentence, {len(limits)}, got {len(prompts)}; or leave them out")
    seen: list[Tensor] = []  # bool "b n v", from the first step on

    def choose(step: Step, alive: Tensor, rows: Tensor, t: int) -> tuple[Tensor, Tensor]:
        if t == 1:
            what = f"sampling {count:,} sentences"
            check_search_fits(step, count, shape[2] + 1, _BYTES_PER_TOKEN, what, "sample fewer, such as 5")
        # at the first step all paths share one state
        log_p = log_probs(step, alive, rows, t, eos, forbidden).expand(-1, count, -1)
        check_possible(log_p.amax(-1), alive)
        scores = log_p
        if penalty is not None:
            if t == 1:
                seen.append(_seen(prompts, log_p))
            logits = step.logits.to(log_p.dtype).expand_as(log_p).masked_fill(log_p == -torch.inf, -torch.inf)
            scores = penalized(logits, seen[0][rows], penalty)
        values, ids = truncated(scores.flatten(0, 1), temperature, top_k, top_p, min_p)
        sums = values.double().exp().cumsum(-1)
        whole = sums[:, -1:]
        # below the whole even where the product rounds up to it, so that no token of probability 0 is sampled
        point = torch.minimum(chances[rows, :, t - 1].reshape(-1, 1) * whole, whole.nextafter(torch.zeros_like(whole)))
        index = torch.searchsorted(sums, point, right=True)
        tokens = (index if ids is None else ids.gather(-1, index)).view(log_p.shape[:2])
        if penalty is not None:
            seen[0][rows] = seen[0][rows].scatter(-1, tokens.unsqueeze(-1), True)
        return tokens, log_p.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)

    return choose


def _seen(prompts: Sequence[Sequence[int]], log_p: Tensor) -> Tensor:  # "b n v" -> bool "b n v"
    """The tokens of each prompt."""
    seen = torch.zeros(log_p.shape, dtype=torch.bool, device=log_p.device)
    for n, prompt in enumerate(prompts):
        seen[n, :, list(prompt)] = True
    return seen


def penalized(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:  # "… v", bool "… v"
    """z / penalty where z > 0 and z · penalty where z < 0, of the tokens that were seen. Finite scores stay finite."""
    info = torch.finfo(logits.dtype)
    penalty = min(max(penalty, info.tiny), info.max)
    # a quarter, so that the difference of two scores is finite too
    changed = torch.where(logits < 0, logits * penalty, logits / penalty).clamp(info.min / 4, info.max / 4)
    return torch.where(seen & (logits > -torch.inf), changed, logits)


def truncated(
    log_p: Tensor, temperature: float, top_k: int | None, top_p: float | None, min_p: float | None = None
) -> tuple[Tensor, Tensor | None]:  # "r v" -> "r k", "r k"
    """The log-probabilities that are sampled from, and their ids (None: 0, 1, …)."""
    # The largest is subtracted first, so that no temperature, however small, makes an infinity of it.
    info = torch.finfo(log_p.dtype)
    scaled = (log_p - log_p.amax(-1, keepdim=True)) / min(max(temperature, info.tiny), info.max)
    ids = None
    if top_k is not None and top_k < scaled.shape[-1]:
        scaled, ids = stable_topk(scaled, top_k)
    elif top_p is not None and top_p < 1:
        scaled, ids = scaled.sort(dim=-1, descending=True, stable=True)
    scaled = scaled.log_softmax(-1)
    if top_p is not None and top_p < 1:
        p = scaled.exp()
        scaled = scaled.masked_fill(p.cumsum(-1) - p >= max(top_p, info.tiny), -torch.inf).log_softmax(-1)
    if min_p is not None:
        p = scaled.exp()
        scaled = scaled.masked_fill(p < min_p * p.amax(-1, keepdim=True), -torch.inf).log_softmax(-1)
    return scaled, ids


def _check(
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    repetition_penalty: float | None,
    count: int,
) -> None:
    checks.positive_ints("sample", count=count)
    checks.positive("temperature", temperature, "sample")
    if top_k is not None:
        checks.positive_ints("sample", top_k=top_k)
    if top_p is not None:
        checks.number("top_p", top_p, "sample")
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {top_p}; 1 keeps everything, try top_p=0.9")
    if min_p is not None:
        checks.number("min_p", min_p, "sample")
        if not 0 <= min_p <= 1:
            raise ValueError(f"min_p must be from 0 to 1, got {min_p}; 0 keeps everything, try min_p=0.05")
    if repetition_penalty is not None:
        checks.positive("repetition_penalty", repetition_penalty, "sample")
