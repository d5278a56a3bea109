"""What a recording keeps of the tensors that a model had: copies, each made once, within a budget of bytes."""

from typing import Any

import torch
from torch import Tensor

from regard.attn.maps.attention_map import frozen


class TensorStore:
    """Copies of tensors. The keys that a module looks at again, or with more behind them, are kept once: so that the
    steps of a generation take linear memory together."""

    def __init__(self, budget: int) -> None:
        self.budget, self.used = budget, 0
        self._keys: dict[str, tuple[Tensor, int]] = {}  # by module: a buffer, and how much of it is in use
        self._shared: list[Tensor] = []
        self._terms: dict[int, tuple[Any, tuple[int, ...], Any]] = {}

    def spend(self, size: int, name: str) -> None:
        """Bytes that are about to be taken."""
        if self.used + size > self.budget:
            raise MemoryError(
                f"the budget of {said(self.budget)} is spent: {said(self.used)} are kept, and {name!r} needs "
                f"{said(size)} more; record fewer layers=, heads= or rows=, or raise budget="
            )
        self.used += size

    def copied(self, what: str, t: Tensor, name: str) -> Tensor:
        """A copy of a tensor, for module `name`; an axis that only repeats itself stays one."""
        t = t.detach()
        if what == "keys" and t.ndim >= 2:
            return self._grown(t, name)
        lead = t.ndim - (2 if what == "queries" else 0)
        thin = t
        for axis in range(lead):
            if t.stride(axis) == 0 and t.shape[axis] > 1:
                thin = thin.narrow(axis, 0, 1)
        if what in ("mask", "bias", "positions"):
            return self._once(thin, name)
        self.spend(thin.nbytes, name)
        return thin.clone().expand(t.shape)

    def _once(self, t: Tensor, name: str) -> Tensor:
        """Layers share masks and positions: so do their maps."""
        for kept in self._shared:
            if kept.shape == t.shape and kept.dtype == t.dtype and kept.device == t.device and torch.equal(kept, t):
                return kept
        self.spend(t.nbytes, name)
        kept = t.clone()
        self._shared = [*self._shared[-7:], kept]
        return kept

    def _grown(self, t: Tensor, name: str) -> Tensor:
        n = t.shape[-2]
        if name in self._keys:
            buffer, used = self._keys[name]
            alike = buffer.shape[:-2] == t.shape[:-2] and buffer.shape[-1] == t.shape[-1] and buffer.dtype == t.dtype
            if alike and used <= n and torch.equal(buffer[..., :used, :], t[..., :used, :]):
                if n > buffer.shape[-2]:
                    bigger = t.new_zeros(*t.shape[:-2], 2 * n, t.shape[-1])
                    self.spend(bigger.nbytes, name)
                    bigger[..., :used, :] = buffer[..., :used, :]
                    buffer = bigger
                buffer[..., used:n, :] = t[..., used:, :]
                self._keys[name] = (buffer, n)
                return buffer[..., :n, :]
        self.spend(t.nbytes, name)
        self._keys[name] = (t.clone(memory_format=torch.contiguous_format), n)
        return self._keys[name][0]

    def freeze(self, term: Any) -> Any:
        """A term that no training step will change, copied once for as long as none does."""
        if term is None or not (term._parameters or term._modules):
            return term
        versions = tuple(p._version for p in term.parameters())
        known = self._terms.get(id(term))
        if known is None or known[0] is not term or known[1] != versions:
            known = self._terms[id(term)] = (term, versions, frozen(term))
        return known[2]


def said(size: float) -> str:
    """Bytes as people read them."""
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
