"""W c_t = Σ_j α_tj W h_j: projects the source once instead of every context.

The context c_t = Σ_j α_tj h_j differs for every step of every hypothesis, and a decoder only multiplies it by matrices.
A search with several hypotheses has many more contexts than a source has positions: so the positions are multiplied by
the matrices, and the attention mixes the results.
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

# relative cost of a multiplication in the weighted sum, which is bound by memory, to one in a matrix product
_MIXING_COST = 8


def project_source_once(
    attention: nn.Module, outputs: Tensor, matrices: Sequence[Tensor], contexts: int
) -> Tensor | None:  # "b s k", "m k" each -> "b s Σm"
    """The positions of a source multiplied by all matrices. None if projecting `contexts` contexts per sentence is less
    work, if the output of the attention is not such a weighted sum, and if an observer is installed.
    """
    if not matrices or observer.current_observer() is not None or not _is_weighted_sum(attention):
        return None
    positions, k, m = *outputs.shape[1:], sum(len(matrix) for matrix in matrices)
    # kernels of softmax and dot products need one width for keys and values
    if (m > k and not isinstance(attention.score, TanhScore)) or not projection_is_cheaper(positions, k, m, contexts):
        return None
    return F.linear(outputs, torch.cat(list(matrices)) if len(matrices) > 1 else matrices[0])


def projection_is_cheaper(positions: int, k: int, m: int, contexts: int) -> bool:
    """Whether projecting `positions` from k to m and mixing m is less work than mixing k and projecting `contexts`."""
    return m * positions * (k + _MIXING_COST * contexts) <= k * contexts * (m + _MIXING_COST * positions)


def _is_weighted_sum(attention: nn.Module) -> TypeGuard[Attention]:
    """Whether its output is Σ_j α_tj v_j with weights α that do not depend on v."""
    return type(attention) is Attention and type(attention.read) is WeightedSum
