"""Which tensors of a state may be averaged with those of other steps."""

from torch import Tensor


def has_mean(name: str, t: Tensor) -> bool:
    """False of whole numbers, and of `_u` and `_v` of a spectral norm.

    These are unit vectors: a mean of several is shorter than one, and what is divided by uᵀ W v would be too large.
    """
    return t.is_floating_point() and not (".parametrizations." in f".{name}" and name.endswith(("._u", "._v")))
