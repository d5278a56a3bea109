"""Sampling from a decoder's distribution: with a temperature, from the top k tokens, from the nucleus."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attn import checks
from regard.decoding.next_tokens import check_arguments, check_possible, log_probs
from regard.decoding.paths import decode_paths
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
    count: int = 1,
    chance: Tensor | None = None,
) -> list[list[Hypothesis]]:  # bos, limits "b", chance "b count t" -> b lists of `count`
    """y_t ~ p(y | y_<t)^(1/temperature), cut to the top_k most probable (Fan et al. 2018), then to the fewest that hold
    top_p of what is left (Holtzman et al. 2020).

    `chance` decides: one number from 0 up to 1 per step of each path, sampled by torch where it is left out.
    `log_prob` is that of the decoder's own distribution, not of the one that was sampled from.
    """
    checks.positive_ints("sample", count=count)
    checks.positive("temperature", temperature, "sample")
    if top_k is not None:
        checks.positive_ints("sample", top_k=top_k)
    if top_p is not None:
        checks.number("top_p", top_p, "sample")
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {top_p}; 1 keeps everything, try top_p=0.9")

    check_arguments(limits, eos, forbidden)
    shape = (len(limits), count, int(limits.max()))
    if chance is None:
        chance = torch.rand(shape, dtype=torch.float64, device=limits.device)
    elif tuple(chance.shape[:2]) != shape[:2] or chance.shape[2] < shape[2]:
        raise ValueError(
            f"chance must be (sentences, count, steps) = {shape} at least, got {checks.shape(chance)}; "
            f"draw it by torch.rand{shape}"
        )
    chances = chance

    def choose(step: Step, alive: Tensor, rows: Tensor, t: int) -> tuple[Tensor, Tensor]:
        if t == 1:
            what = f"sampling {count:,} sentences"
            check_search_fits(step, count, shape[2] + 1, _BYTES_PER_TOKEN, what, "sample fewer, such as 5")
        # at the first step all paths share one state
        log_p = log_probs(step, alive, rows, t, eos, forbidden).expand(-1, count, -1)
        check_possible(log_p.amax(-1), alive)
        values, ids = truncated(log_p.flatten(0, 1), temperature, top_k, top_p)
        sums = values.double().exp().cumsum(-1)
        whole = sums[:, -1:]
        # below the whole even where the product rounds up to it, so that no token of probability 0 is sampled
        point = torch.minimum(chances[rows, :, t - 1].reshape(-1, 1) * whole, whole.nextafter(torch.zeros_like(whole)))
        index = torch.searchsorted(sums, point, right=True)
        tokens = (index if ids is None else ids.gather(-1, index)).view(log_p.shape[:2])
        return tokens, log_p.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)

    return decode_paths(decoder, state, choose, count, bos, eos, limits, forbidden)


def truncated(
    log_p: Tensor, temperature: float, top_k: int | None, top_p: float | None
) -> tuple[Tensor, Tensor | None]:  # "r v" -> "r k", "r k"
    """The log-probabilities that are sampled from, and their ids (None: 0, 1, …)."""
    # The largest is subtracted first, so that no temperature, however small, makes an infinity of it.
    scaled = (log_p - log_p.amax(-1, keepdim=True)) / temperature
    ids = None
    if top_k is not None and top_k < scaled.shape[-1]:
        scaled, ids = stable_topk(scaled, top_k)
    elif top_p is not None and top_p < 1:
        scaled, ids = scaled.sort(dim=-1, descending=True, stable=True)
    scaled = scaled.log_softmax(-1)
    if top_p is not None and top_p < 1:
        p = scaled.exp()
        scaled = scaled.masked_fill(p.cumsum(-1) - p >= top_p, -torch.inf).log_softmax(-1)
    return scaled, ids
