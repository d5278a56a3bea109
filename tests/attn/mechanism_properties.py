"""Properties of the mechanisms of the catalogue, read from their modules."""

import torch
from torch import Tensor

import regard
from regard import MECHANISMS, mechanism
from regard.attn.terms.score import TanhScore

D, E = 11, 8


def refused(name: str, q: int, k: int, *values: Tensor) -> str:
    """The error of a mechanism for inputs of these widths, and values; empty if it takes them."""
    try:
        mechanism(name, q, k)(torch.zeros(1, 1, q), torch.zeros(1, 1, k), *values)
    except ValueError as error:
        return str(error)
    return ""


MODULES = {name: mechanism(name, E) for name in MECHANISMS}
# mechanisms that compare q and k as they are
ONE_WIDTH = {name for name in MECHANISMS if refused(name, D, E)}
# mechanisms that read k itself
NO_VALUES = {name for name in MECHANISMS if refused(name, E, E, torch.zeros(1, 1, E))}
_MULTI = regard.MultiHead | regard.layers.Latent | regard.layers.NativeSparseAttention | regard.layers.GraphAttention
HEADS = {name for name, module in MODULES.items() if isinstance(module, _MULTI)}
# heads that do not feel the bias of their keys, which adds one number to all scores of a row; others do not only add
KEY_BIAS_IS_SILENT = HEADS - {"rotary", "selective", "qk-norm", "sink", "latent"}
# mechanisms in which every step knows the steps before, or all of them together
CHAINED = {name for name, module in MODULES.items() if hasattr(module, "start") or not hasattr(module, "project_kv")}
# mechanisms in which a row depends on the rows before it
BY_ROWS = {
    name
    for name, module in MODULES.items()
    if (bias := getattr(getattr(module, "attention", module), "bias", None)) is not None and bias.reads_rows
}
# mechanisms that read one key in evaluation
HARD = {
    name
    for name, module in MODULES.items()
    if isinstance(module, regard.Attention) and not isinstance(module.read, regard.reads.WeightedSum)
}
# mechanisms whose rows may sum to more than one
UNBOUNDED = {
    name
    for name, module in MODULES.items()
    if isinstance(module, regard.Attention)
    and not (module.normalize.distribution or isinstance(module.normalize, regard.normalizers.WithNullSlot))
}
# mechanisms whose context is the weighted sum of values, and those of them that compare by tanh
SUMS = {name for name, module in MODULES.items() if isinstance(module, regard.Attention)} - HARD
TANH = {name for name in SUMS if isinstance(MODULES[name].score, TanhScore)}
