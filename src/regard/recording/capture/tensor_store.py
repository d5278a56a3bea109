"""TensorStore: copies of the tensors that recorded maps need, each made once, within a budget of bytes."""

from typing import Any

import torch
from torch import Tensor

from regard.attn.maps.attention_map import freeze_term

# tensors that the layers of a model share, of which the newest are compared with each new one
_SHARED = 8


class TensorStore:
    """Copies of tensors. Keys of a module that grow from call to call, as in a KV cache, are stored once, so that the
    steps of a generation take linear memory together."""

    def __init__(self, budget: int) -> None:
        self.budget, self.used = budget, 0
        self._keys: dict[str, tuple[Tensor, int]] = {}  # per module: a buffer, and how much of it is in use
        self._shared: list[Tensor] = []
        self._terms: dict[int, tuple[Any, tuple[int, ...], Any]] = {}

    def reserve(self, size: int, name: str) -> None:
        """Counts bytes that module `name` is about to take."""
        self.check(size, name)
        self.used += size

    def check(self, size: int, name: str) -> None:
        """Raises if module `name` cannot store this many bytes."""
        if self.used + size > self.budget:
            raise MemoryError(
                f"the budget of {readable_size(self.budget)} is spent: {readable_size(self.used)} are kept, and "
                f"{name!r} needs {readable_size(size)} more; record fewer layers=, heads= or rows=, or raise budget="
            )

    def copy(self, role: str, t: Tensor, name: str) -> Tensor:
        """A copy of a tensor for module `name`; an expanded axis (stride 0) is stored once."""
        t = t.detach()
        if role == "keys" and t.ndim >= 2:
            return self._copy_keys(t, name)
        lead = t.ndim - (2 if role == "queries" else 0)
        thin = t
        for axis in range(lead):
            if t.stride(axis) == 0 and t.shape[axis] > 1:
                thin = thin.narrow(axis, 0, 1)
        if role in ("mask", "bias", "positions"):
            return self._copy_shared(thin, name)
        self.reserve(thin.nbytes, name)
        return thin.clone() if thin is t else thin.clone().expand(t.shape)

    def _copy_shared(self, t: Tensor, name: str) -> Tensor:
        """One copy for all layers that use equal masks, biases or positions."""
        for copy in self._shared:
            if copy.shape == t.shape and copy.dtype == t.dtype and copy.device == t.device and torch.equal(copy, t):
                return copy
        self.reserve(t.nbytes, name)
        copy = t.clone()
        self._shared = [*self._shared[1 - _SHARED :], copy]
        return copy

    def _copy_keys(self, t: Tensor, name: str) -> Tensor:
        n = t.shape[-2]
        if name in self._keys:
            buffer, used = self._keys[name]
            fits = buffer.shape[:-2] == t.shape[:-2] and buffer.shape[-1] == t.shape[-1] and buffer.dtype == t.dtype
            if fits and used <= n and torch.equal(buffer[..., :used, :], t[..., :used, :]):
                if n > buffer.shape[-2]:
                    bigger = t.new_zeros(*t.shape[:-2], 2 * n, t.shape[-1])
                    self.reserve(bigger.nbytes, name)
                    bigger[..., :used, :] = buffer[..., :used, :]
                    buffer = bigger
                buffer[..., used:n, :] = t[..., used:, :]
                self._keys[name] = (buffer, n)
                return buffer[..., :n, :]
        self.reserve(t.nbytes, name)
        self._keys[name] = (t.clone(memory_format=torch.contiguous_format), n)
        return self._keys[name][0]

    def frozen_copy(self, term: Any) -> Any:
        """A copy of a term that later training steps do not change; made again only after its parameters changed."""
        if term is None or not (term._parameters or term._modules):
            return term
        versions = tuple(p._version for p in term.parameters())
        entry = self._terms.get(id(term))
        if entry is None or entry[0] is not term or entry[1] != versions:
            entry = self._terms[id(term)] = (term, versions, freeze_term(term))
        return entry[2]


def readable_size(size: float) -> str:
    """Bytes as text: 12 kB, 3.4 GB."""
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
