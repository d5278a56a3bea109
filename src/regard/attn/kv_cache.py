"""KVCache: projected keys and values, owned by the caller, never by a layer. Segment: states of Transformer-XL."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from regard.attn.nonfinite import finite
from regard.common import checks
from regard.kernels.decoder_step import cache_entry


@dataclass(eq=False)
class _Store:
    """Preallocated storage: tensors longer than their used part."""

    keys: Tensor
    values: Tensor
    used: int
    entry: tuple[int, ...] | None = None  # see KVCache.entry


@dataclass(frozen=True, eq=False)
class KVCache:
    """Keys "*b k c" as the score projected them, values "*b k v", and the keys' positions "k" (0, 1, … if None).

    `extend` returns a longer cache and leaves this one unchanged. Under torch.no_grad() the longer one shares its
    storage, which doubles when it is full: n steps copy O(n) keys in all, not O(n²).
    """

    keys: Tensor
    values: Tensor
    positions: Tensor | None = None
    _store: _Store | None = None
    _like: "KVCache | None" = None  # a cache with the same numbers, whose `finite` is reused
    _finite_length: int = 0  # the first positions, known to be finite
    # what the queries before have masked, of each query that continues, "*b n k"; see `Selective`
    votes: Tensor | None = None

    def __post_init__(self) -> None:
        if self.keys.shape[-2] != self.values.shape[-2]:
            raise ValueError(
                f"keys and values must have the same length, "
                f"got {checks.shape(self.keys)} and {checks.shape(self.values)}; axis -2 counts the positions"
            )

    def __repr__(self) -> str:
        return f"KVCache(keys {checks.shape(self.keys)}, values {checks.shape(self.values)})"

    def __len__(self) -> int:
        return self.keys.shape[-2]

    @cached_property
    def finite(self) -> bool:
        """Whether keys and values surely contain no NaN or inf. Computed once per cache, of new positions only."""
        if self._like is not None:
            return self._like.finite
        start = self._finite_length
        return finite(self.keys[..., start:, :], self.values[..., start:, :])

    def extend(self, keys: Tensor, values: Tensor, positions: Tensor | None = None) -> "KVCache":
        """This cache with more keys and values appended."""
        for name, new, old in (("keys", keys, self.keys), ("values", values, self.values)):
            if new.dtype != old.dtype or new.device != old.device:
                raise TypeError(
                    f"{name} of {new.dtype} on {new.device} do not continue a cache of {old.dtype} on {old.device}; "
                    f"convert them with .to(cache.{name})"
                )
            if new.shape[:-2] != old.shape[:-2] or new.shape[-1] != old.shape[-1]:
                raise ValueError(
                    f"{name} {checks.shape(new)} do not continue a cache of {checks.shape(old)}; "
                    "all axes except -2 must agree"
                )
        if (positions is None) != (self.positions is None):
            raise ValueError("positions must be given to every extend or to none; pass the positions of the new keys")
        joined = None if positions is None or self.positions is None else torch.cat([self.positions, positions], dim=-1)
        # a later backward may need these very keys: storage is shared only without gradients
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return KVCache(torch.cat([self.keys, keys], dim=-2), torch.cat([self.values, values], dim=-2), joined)
        longer = self.reserve(keys.shape[-2], joined)
        assert longer._store is not None
        # .data, because the written part lies behind everything that a graph may have saved of this storage
        longer._store.keys.data[..., len(self) : len(longer), :] = keys
        longer._store.values.data[..., len(self) : len(longer), :] = values
        return longer

    def reserve(self, count: int, positions: Tensor | None = None) -> "KVCache":
        """This cache with `count` more positions whose keys and values are still to be written; without gradients."""
        length = len(self) + count
        store = self._store
        # another cache may have been extended from this one: the storage behind it is then not free
        if store is None or store.used != len(self) or length > store.keys.shape[-2]:
            store = _Store(_grow(self.keys, length), _grow(self.values, length), 0)
        store.used = length
        finite_length = self._known_finite()
        return KVCache(
            store.keys[..., :length, :], store.values[..., :length, :], positions, store, None, finite_length
        )

    def _known_finite(self) -> int:
        """How many positions are known to be finite, without looking at any."""
        return len(self) if self.__dict__.get("finite", False) else self._finite_length

    @cached_property
    def entry(self) -> tuple[int, ...] | None:
        """Where the keys and values are, as the native steps read and write them; None: where they cannot."""
        store = self._store
        if store is None:
            in_rows = self.keys.stride(-1) == self.values.stride(-1) == 1
            return cache_entry(self.keys, self.values) if in_rows else None
        if store.entry is None:
            store.entry = cache_entry(store.keys, store.values)
        return store.entry

    def reorder(self, index: Tensor) -> "KVCache":
        """The samples `index` of the first batch axis, as a beam search selects them."""
        positions = self.positions
        if positions is not None and positions.ndim > 1:
            positions = positions.index_select(0, index)
        finite_length = self._known_finite()
        votes = None if self.votes is None else self.votes.index_select(0, index)
        keys, values = self.keys.index_select(0, index), self.values.index_select(0, index)
        return KVCache(keys, values, positions, None, None, finite_length, votes)

    def widen(self, dtype: torch.dtype) -> "KVCache":
        """This cache in a floating type that holds all of its numbers, as one made under autocast is read outside."""
        if self.values.dtype == dtype or torch.promote_types(self.values.dtype, dtype) != dtype:
            return self
        keys = self.keys
        keys = keys.to(torch.promote_types(keys.dtype, dtype)) if keys.is_floating_point() else keys
        return replace(self, keys=keys, values=self.values.to(dtype), _store=None, _like=self)

    def select_queries(self, index: Tensor) -> "KVCache":  # "b n2"
        """The cache that the queries `index`, each behind the keys of all, continue."""
        if self.votes is None:
            return self
        index = index.unsqueeze(-1).expand(-1, -1, len(self))
        return replace(self, votes=self.votes.gather(-2, index))

    def drop_first(self, count: int) -> "KVCache":
        """Without its first `count` keys."""
        positions = None if self.positions is None else self.positions[..., count:]
        votes = None if self.votes is None else self.votes[..., count:]
        return KVCache(self.keys[..., count:, :], self.values[..., count:, :], positions, votes=votes)


def check_cache(past: object) -> None:
    """Raises unless it is a KVCache or None."""
    if past is not None:
        checks.instance_of("past", past, KVCache, "layer.project_kv(x)")


def _grow(old: Tensor, length: int) -> Tensor:
    """A tensor of twice the needed length that starts with `old`; the rest is undefined and never read."""
    new = old.new_empty(*old.shape[:-2], max(2 * length, 16), old.shape[-1])
    new[..., : old.shape[-2], :] = old
    return new


@dataclass(frozen=True, eq=False)
class Segment:
    """The last `keep` states of the previous segments, detached from the graph  (Dai et al. 2019, eq. for h̃)."""

    keep: int
    states: Tensor | None = None  # "*b m d"

    def __post_init__(self) -> None:
        if self.keep < 0:
            raise ValueError(f"keep must be 0 or more for Segment, got {self.keep}; try {-self.keep}")

    def before(self, x: Tensor) -> Tensor:  # "*b n d" -> "*b m+n d"
        """The keys of the segment x: the past states, then x itself."""
        return x if self.states is None else torch.cat([self.states.to(x.dtype), x], dim=-2)

    def extend(self, x: Tensor) -> "Segment":
        """The segment state after x."""
        states = self.before(x).detach()
        return Segment(self.keep, states[..., max(states.shape[-2] - self.keep, 0) :, :])
