"""Maximum flow through the layers of a stack of attention."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

# scipy takes whole numbers of 32 bits; a row of capacities sums to 1
_UNIT = 2**24


def maximum_flows(capacities: Sequence[Tensor], source: int) -> Tensor:  # "n n" each -> "n"
    """The maximum flow from one node of the last layer to each input, given edges from the last layer to the first.

    Edge (i, j) of a layer leads from node i to node j of the layer below and carries capacities[i, j]. Exact up to the
    rounding of capacities to multiples of 2⁻²⁴.
    """
    try:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import maximum_flow
    except ImportError as error:
        raise ImportError("the maximum flow needs scipy; install it with: pip install 'regard[explain]'") from error
    n, layers = len(capacities[0]), len(capacities)
    values, above, below = [], [], []
    for layer, matrix in enumerate(capacities):
        whole = np.round(matrix.double().cpu().numpy() * _UNIT).astype(np.int32)
        i, j = whole.nonzero()
        values.append(whole[i, j])
        above.append(i + layer * n)
        below.append(j + (layer + 1) * n)
    places = np.concatenate(above), np.concatenate(below)
    size = n * (layers + 1)
    edges = csr_array((np.concatenate(values), places), shape=(size, size))
    flows = [maximum_flow(edges, source, layers * n + j).flow_value / _UNIT for j in range(n)]
    return torch.tensor(flows, dtype=torch.float32)
