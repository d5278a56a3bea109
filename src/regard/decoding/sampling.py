"""Sampling from a decoder's distribution: penalties, a temperature, the top k tokens, the nucleus, a least share."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from regard.common import checks
from regard.decoding.margins import Margins
from regard.decoding.next_tokens import check_arguments, check_possible, log_probs
from regard.decoding.paths import Choose, PathStep, Stop, decode_paths, path_steps
from regard.decoding.protocol import Decoder, DecodingState, Hypothesis, Step
from regard.decoding.search_memory import check_search_fits
from regard.decoding.token_sampling import TokenSampler, sample_tokens

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
    this penalty reads. `chance` decides: one number from 0 to 1 per step of each path, sampled by torch where it is
    left out; a larger number means no other token. `log_prob` is that of the decoder's own distribution, not of the one
    that was sampled from.
    """
    checks.positive_ints("sample", count=count)
    check_arguments(limits, eos, forbidden)
    sampler = TokenSampler(temperature, top_k, top_p, min_p, repetition_penalty)
    choose = _choice(limits, eos, forbidden, [sampler] * len(limits), prompts, count, chance)
    return decode_paths(decoder, state, choose, count, bos, eos, limits, forbidden)


def sample_steps(
    decoder: Decoder,
    state: DecodingState,
    *,
    bos: int | Tensor,
    eos: int | None,
    limits: Tensor,
    chance: Tensor,
    samplers: Sequence[TokenSampler],
    forbidden: Sequence[int] = (),
    prompts: Sequence[Sequence[int]] = (),
    stop: Stop | None = None,
    margins: Margins | None = None,
) -> Iterator[PathStep]:  # bos, limits "b", chance "b 1 t"
    """The tokens of `sample`, one step at a time; each text has its own of the `samplers`.

    `stop` ends texts before their limit; eos=None: no token ends a text. `margins` receives those of every text.
    """
    check_arguments(limits, eos, forbidden)
    choose = _choice(limits, eos, forbidden, samplers, prompts, 1, chance, margins)
    return path_steps(decoder, state, choose, 1, bos, eos, limits, forbidden, stop)


def _choice(
    limits: Tensor,
    eos: int | None,
    forbidden: Sequence[int],
    samplers: Sequence[TokenSampler],
    prompts: Sequence[Sequence[int]],
    count: int,
    chance: Tensor | None,
    margins: Margins | None = None,
) -> Choose:
    """The function that samples the next token of every path."""
    shape = (len(limits), count, int(limits.max()))
    if chance is None:
        chance = torch.rand(shape, dtype=torch.float64, device=limits.device)
    elif tuple(chance.shape[:2]) != shape[:2] or chance.shape[2] < shape[2]:
        raise ValueError(
            f"chance must be (sentences, count, steps) = {shape} at least, got {checks.shape(chance)}; "
            f"draw it by torch.rand{shape}"
        )
    chances = chance
    kinds = list(dict.fromkeys(samplers))
    kind = torch.tensor([kinds.index(sampler) for sampler in samplers], device=limits.device)  # "b"
    has_penalty = any(sampler.penalty is not None for sampler in kinds)
    if has_penalty and len(prompts) not in (0, len(limits)):
        raise ValueError(f"prompts must be one per sentence, {len(limits)}, got {len(prompts)}; or leave them out")
    seen: list[Tensor] = []  # bool "b n v", from the first step on

    def choose(step: Step, alive: Tensor, rows: Tensor, t: int) -> tuple[Tensor, Tensor]:
        if t == 1:
            what = f"sampling {count:,} sentences"
            check_search_fits(step, count, shape[2] + 1, _BYTES_PER_TOKEN, what, "sample fewer, such as 5")
        # at the first step all paths share one state
        log_p = log_probs(step, alive, rows, t, eos, forbidden).expand(-1, count, -1)
        check_possible(log_p.amax(-1), alive)
        if has_penalty:
            if t == 1:
                seen.append(_seen(prompts, log_p))
            logits = step.logits.to(log_p.dtype).expand_as(log_p).masked_fill(log_p == -torch.inf, -torch.inf)
        tokens = rows.new_empty(log_p.shape[:2])
        for k, sampler in enumerate(kinds):
            part = slice(None) if len(kinds) == 1 else (kind[rows] == k).nonzero().squeeze(-1)
            if not len(texts := rows[part]):
                continue
            scores = log_p[part]
            if sampler.penalty is not None:
                scores = penalize(logits[part], seen[0][texts], sampler.penalty)
            chance = chances[texts, :, t - 1].reshape(-1, 1)
            sampled = sample_tokens(scores.flatten(0, 1), sampler, chance, need_margins=margins is not None)
            tokens[part] = sampled.tokens.view(-1, count)
            if margins is not None and sampled.margins is not None:
                closest = sampled.margins.view(-1, count).masked_fill(~alive[part], torch.inf)
                margins.lower(texts, closest.amin(-1))
        if has_penalty:
            seen[0][rows] = seen[0][rows].scatter(-1, tokens.unsqueeze(-1), True)
        return tokens, log_p.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)

    return choose


def _seen(prompts: Sequence[Sequence[int]], log_p: Tensor) -> Tensor:  # "b n v" -> bool "b n v"
    """The tokens of each prompt."""
    seen = torch.zeros(log_p.shape, dtype=torch.bool, device=log_p.device)
    for n, prompt in enumerate(prompts):
        seen[n, :, list(prompt)] = True
    return seen


def penalize(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:  # "… v", bool "… v"
    """z / penalty where z > 0 and z · penalty where z < 0, of the tokens that were seen. Finite scores stay finite."""
    info = torch.finfo(logits.dtype)
    penalty = min(max(penalty, info.tiny), info.max)
    # a quarter, so that the difference of two scores is finite too
    changed = torch.where(logits < 0, logits * penalty, logits / penalty).clamp(info.min / 4, info.max / 4)
    return torch.where(seen & (logits > -torch.inf), changed, logits)
