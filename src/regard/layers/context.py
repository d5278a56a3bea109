"""W c_t = Σ_j α_tj W h_j: what a decoder makes of a context, it can make of the source, once.

c_t = Σ_j α_tj h_j is another one at every step of every hypothesis, and a decoder reads it through matrices alone. A
search of several hypotheses makes many more contexts than a source has places: so the places go through the matrices,
and the attention mixes what came out.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.layer import Attention
from regard.attention.local import Local
from regard.attention.location import LocationAttention
from regard.attention.monotonic import Monotonic
from regard.layers.heard import heard
from regard.parts import tap
from regard.parts.call import MIX
from regard.parts.read import Mix

# these find Σ_j α_tj v_j of any v, and v has no part in α
_MIXES = (Attention, Local, LocationAttention, Monotonic)
# how many contexts a search makes for each place of a source, about: the hypotheses of a small beam
SEARCHED = 4


def projected(
    attention: nn.Module, outputs: Tensor, matrices: Sequence[Tensor], contexts: int
) -> Tensor | None:  # "b s k", "m k" each -> "b s Σm"
    """The places of a source through all matrices.  None where as many `contexts` of each sentence would be less work,
    where the attention finds something else than such a sum, and where somebody listens to what it finds.
    """
    mixes = type(attention) in _MIXES and type(getattr(attention, "read", MIX)) is Mix
    if not matrices or not mixes or heard(attention) or tap.listener() is not None:
        return None
    places, k, m = *outputs.shape[1:], sum(len(matrix) for matrix in matrices)
    if m * places * (k + contexts) > k * contexts * (m + places):
        return None
    return F.linear(outputs, torch.cat(list(matrices)) if len(matrices) > 1 else matrices[0])
