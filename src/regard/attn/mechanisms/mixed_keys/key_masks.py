"""Masks of mechanisms in which the keys are mixed before any query reads them: they hide the same keys from all."""

import torch
from torch import Tensor

from regard.attn.call import AttentionCall
from regard.kernels.dispatch import has_values, in_functorch_transform


def allowed_keys(call: AttentionCall, owner: str) -> Tensor | None:  # -> bool "*b 1 k"
    """The keys that a call allows; raises if some query may attend to other keys than the rest, or if this cannot be
    known: in compiled code and under torch.func a mask per query is refused, whatever it holds.
    """
    allowed = call.allowed()
    if allowed is None or allowed.shape[-2] == 1:
        return allowed
    first = allowed[..., :1, :]
    is_unknown = torch.compiler.is_compiling() or in_functorch_transform()
    # tensors without values, of which only shapes count, are taken on trust
    if is_unknown or (has_values(allowed) and not bool((allowed == first).all())):
        raise ValueError(
            f"mask must hide the same keys from all queries for {owner}, which mixes the keys before a query reads "
            f"them, got {call.mask!r}; pass Lengths(...) or a boolean tensor (*b, 1, k)"
        )
    return first
