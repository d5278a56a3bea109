"""Whether an entry of a state_dict may be averaged over checkpoints."""

from torch import Tensor


def can_average(name: str, t: Tensor) -> bool:
    """False for integers, and for `_u` and `_v` of a spectral norm.

    Those are unit vectors: the mean of several is shorter than one, and a weight divided by uᵀ W v would be too large.
    """
    return t.is_floating_point() and not (".parametrizations." in f".{name}" and name.endswith(("._u", "._v")))
