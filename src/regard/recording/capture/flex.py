"""torch's flex_attention: softmax(score_mod(scale · q kᵀ), block_mask) v."""

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attn.call import exactly
from regard.attn.call_slicing import Copied
from regard.attn.maps.attention_map import AttentionMap, SnapshotMap
from regard.attn.terms.normalizer import Softmax
from regard.recording.capture.recorder import CapturedCall
from regard.recording.capture.sdpa import kind_of

if TYPE_CHECKING:
    from regard.recording.capture.function_mode import CaptureMode


class Modified(SnapshotMap):
    """softmax(score_mod(scale · q kᵀ, b, h, i, j)) where mask_mod(b, h, i, j): computed row by row from q and k.

    The functions are kept as they are: a tensor that one of them reads must not be written later.
    """

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        scale: float,
        score_mod: Callable[..., Tensor] | None,
        mask_mod: Callable[..., Tensor] | None,
    ) -> None:
        self._q, self._k, self._scale, self._score_mod, self._mask_mod = (
            q.detach(),
            k.detach(),
            scale,
            score_mod,
            mask_mod,
        )
        device = q.device
        self._samples, self._heads = torch.arange(q.shape[0], device=device), torch.arange(q.shape[1], device=device)
        self._rows = torch.arange(q.shape[2], device=device)
        self._group = q.shape[1] // k.shape[1]
        self._gone: tuple[int, ...] = ()  # axes that an index took away

    @property
    def shape(self) -> tuple[int, ...]:
        lead = [n for axis, n in enumerate((len(self._samples), len(self._heads))) if axis not in self._gone]
        return (*lead, len(self._rows), self._k.shape[-2])

    @property
    def device(self) -> torch.device:
        return self._q.device

    @torch.no_grad()
    def rows(self, rows: Tensor | slice) -> Tensor:
        b, h, i = self._samples, self._heads, self._rows[rows]
        j = torch.arange(self._k.shape[-2], device=self.device)
        kind = torch.promote_types(self._q.dtype, torch.float32)
        with exactly(self.device):
            q = self._q[b][:, h][:, :, rows].to(kind)
            k = self._k[b % len(self._k)][:, h // self._group].to(kind)
            scores = (q * self._scale) @ k.mT
            if self._score_mod is not None:
                scores = _each(self._score_mod, (0, None, None, None, None))(scores, b, h, i, j).to(kind)
            allowed = self._mask(i, j)
            seen = scores > -torch.inf
            weights = Softmax().weights(scores, seen if allowed is None else seen & allowed)
        for axis in reversed(self._gone):
            weights = weights.squeeze(axis)
        return weights

    def _mask(self, i: Tensor, j: Tensor) -> Tensor | None:
        return None if self._mask_mod is None else _each(self._mask_mod, (None,) * 4)(self._samples, self._heads, i, j)

    @torch.no_grad()
    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        found = self._mask(self._rows[rows], torch.arange(self._k.shape[-2], device=self.device))
        for axis in reversed(self._gone):
            found = None if found is None else found.squeeze(axis)
        return found

    @property
    def rule(self) -> "Modified":
        mine = copy.copy(self)
        mine._q, mine._k = self._q[..., :0], self._k[..., :0]
        return mine

    def _at(self, index: tuple[int | slice, ...]) -> AttentionMap:
        few = copy.copy(self)
        left = [axis for axis in (0, 1) if axis not in self._gone]
        gone = list(self._gone)
        for axis, one in zip(left, index, strict=False):
            taken = (few._samples if axis == 0 else few._heads)[one]
            if not isinstance(one, slice):
                gone.append(axis)
                taken = taken.unsqueeze(0)
            if axis == 0:
                few._samples = taken
            else:
                few._heads = taken
        few._gone = tuple(sorted(gone))
        return few

    def of_rows(self, rows: Sequence[int]) -> "Modified":
        few = copy.copy(self)
        few._q, few._rows = self._q[..., list(rows), :], self._rows[list(rows)]
        return few

    def of_heads(self, heads: Sequence[int]) -> "Modified":
        few = copy.copy(self)
        few._heads = self._heads[list(heads)]
        return few

    def own(self, copied: Copied) -> "Modified":
        mine = copy.copy(self)
        mine._q, mine._k = copied("queries", self._q), copied("keys", self._k)
        return mine


def _each(mod: Callable[..., Tensor], first: tuple[int | None, ...]) -> Callable[..., Tensor]:
    """A function of one cell, for all cells: over keys, rows, heads and samples."""
    for axis in (3, 2, 1, 0):
        scores = first[:1] if len(first) == 5 else ()
        places: list[int | None] = [None] * 4
        places[axis] = 0
        mod = torch.vmap(mod, in_dims=(*scores, *places))
    return mod


def hear(ear: "CaptureMode", func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    got = func(*args, **kwargs)
    names = (
        "query",
        "key",
        "value",
        "score_mod",
        "block_mask",
        "scale",
        "kernel_options",
        "score_others",
        "mask_others",
    )
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    frame, recorder = ear.frame, ear.recorder
    q, k, v = given["query"], given["key"], given["value"]
    kind = kind_of(frame, q, k, False)
    step = recorder.step(frame.name, kind, q.shape[-2], max(k.shape[-2] - q.shape[-2], 0), v)
    if recorder.wants(frame.name):
        score_mod, mask_mod = given["score_mod"], given["block_mask"][-1]
        weights = Modified(q, k, given["scale"], score_mod, mask_mod)
        recorder.keep(frame, CapturedCall(weights, v, got[0], "flex_attention", kind, step, plain=got[0]))
    return got
