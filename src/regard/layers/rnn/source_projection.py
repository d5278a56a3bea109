"""W c_t = Σ_j α_tj W h_j: what a decoder makes of a context, it can make of the source, once.

c_t = Σ_j α_tj h_j is another one at every step of every hypothesis, and a decoder reads it through matrices alone. A
search of several hypotheses makes many more contexts than a source has places: so the places go through the matrices,
and the attention mixes what came out.
"""

from collections.abc import Sequence
from typing import TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import observer
from regard.attn.layer import Attention
from regard.attn.terms.read import WeightedSum
from regard.attn.terms.score import TanhScore

# a product of the mix takes so long as this many of a matrix: it waits for memory
_MIXED = 8


def projected(
    attention: nn.Module, outputs: Tensor, matrices: Sequence[Tensor], contexts: int
) -> Tensor | None:  # "b s k", "m k" each -> "b s Σm"
    """The places of a source through all matrices.  None where as many `contexts` of each sentence would be less work,
    where the attention finds something else than such a sum, and where somebody listens to what it finds.
    """
    if not matrices or observer.listener() is not None or not _mixes(attention):
        return None
    places, k, m = *outputs.shape[1:], sum(len(matrix) for matrix in matrices)
    # kernels of softmax and dot products have one width for keys and values
    if (m > k and not isinstance(attention.score, TanhScore)) or not pays(places, k, m, contexts):
        return None
    return F.linear(outputs, torch.cat(list(matrices)) if len(matrices) > 1 else matrices[0])


def pays(places: int, k: int, m: int, contexts: int) -> bool:
    """Is it less work to project `places` from k to m, and to mix m, than to mix k and to project `contexts`?"""
    return m * places * (k + _MIXED * contexts) <= k * contexts * (m + _MIXED * places)


def _mixes(attention: nn.Module) -> TypeGuard[Attention]:
    """Does it find Σ_j α_tj v_j of any v, which has no part in α?"""
    return type(attention) is Attention and type(attention.read) is WeightedSum
