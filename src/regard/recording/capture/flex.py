"""torch's flex_attention: softmax(score_mod(scale · q kᵀ), block_mask) v."""

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attn.call_slicing import CopyTensor
from regard.attn.maps.attention_map import AttentionMap, SnapshotMap
from regard.attn.terms.normalizer import Softmax
from regard.kernels.dispatch import autocast_disabled
from regard.kernels.torch_versions import indexing_under_vmap
from regard.recording.capture.cache_positions import cached_keys
from regard.recording.capture.recorder import CapturedCall
from regard.recording.capture.sdpa import attention_kind

if TYPE_CHECKING:
    from regard.recording.capture.function_mode import CaptureMode


class FlexMap(SnapshotMap):
    """softmax(score_mod(scale · q kᵀ, b, h, i, j)) where mask_mod(b, h, i, j): computed row by row from q and k.

    The functions are not copied: a tensor that one of them reads must not be written later.
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
        self._removed: tuple[int, ...] = ()  # axes that an integer index removed

    @property
    def shape(self) -> tuple[int, ...]:
        lead = [n for axis, n in enumerate((len(self._samples), len(self._heads))) if axis not in self._removed]
        return (*lead, len(self._rows), self._k.shape[-2])

    @property
    def device(self) -> torch.device:
        return self._q.device

    @torch.no_grad()
    def rows(self, rows: Tensor | slice) -> Tensor:
        b, h, i = self._samples, self._heads, self._rows[rows]
        j = torch.arange(self._k.shape[-2], device=self.device)
        dtype = torch.promote_types(self._q.dtype, torch.float32)
        with autocast_disabled(self.device):
            q = self._q[b][:, h][:, :, rows].to(dtype)
            k = self._k[b % len(self._k)][:, h // self._group].to(dtype)
            scores = (q * self._scale) @ k.mT
            if self._score_mod is not None:
                scores = _vectorized(self._score_mod, (0, None, None, None, None))(scores, b, h, i, j).to(dtype)
            allowed = self._mask(i, j)
            finite = scores > -torch.inf
            weights = Softmax().weights(scores, finite if allowed is None else finite & allowed)
        for axis in reversed(self._removed):
            weights = weights.squeeze(axis)
        return weights

    def _mask(self, i: Tensor, j: Tensor) -> Tensor | None:
        return (
            None
            if self._mask_mod is None
            else _vectorized(self._mask_mod, (None,) * 4)(self._samples, self._heads, i, j)
        )

    @torch.no_grad()
    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        allowed = self._mask(self._rows[rows], torch.arange(self._k.shape[-2], device=self.device))
        for axis in reversed(self._removed):
            allowed = None if allowed is None else allowed.squeeze(axis)
        return allowed

    @property
    def mask_only(self) -> "FlexMap":
        rule = copy.copy(self)
        rule._q, rule._k = self._q[..., :0], self._k[..., :0]
        return rule

    def _select(self, index: tuple[int | slice, ...]) -> AttentionMap:
        selected = copy.copy(self)
        axes = [axis for axis in (0, 1) if axis not in self._removed]
        removed = list(self._removed)
        for axis, item in zip(axes, index, strict=False):
            numbers = (selected._samples if axis == 0 else selected._heads)[item]
            if not isinstance(item, slice):
                removed.append(axis)
                numbers = numbers.unsqueeze(0)
            if axis == 0:
                selected._samples = numbers
            else:
                selected._heads = numbers
        selected._removed = tuple(sorted(removed))
        return selected

    def select_rows(self, rows: Sequence[int]) -> "FlexMap":
        selected = copy.copy(self)
        selected._q, selected._rows = self._q[..., list(rows), :], self._rows[list(rows)]
        return selected

    def select_heads(self, heads: Sequence[int]) -> "FlexMap":
        selected = copy.copy(self)
        selected._heads = self._heads[list(heads)]
        return selected

    def snapshot(self, copied: CopyTensor) -> "FlexMap":
        copies = copy.copy(self)
        copies._q, copies._k = copied("queries", self._q), copied("keys", self._k)
        return copies


def _vectorized(mod: Callable[..., Tensor], first: tuple[int | None, ...]) -> Callable[..., Tensor]:
    """A function of one cell, mapped over keys, rows, heads and samples."""
    for axis in (3, 2, 1, 0):
        scores = first[:1] if len(first) == 5 else ()
        axes: list[int | None] = [None] * 4
        axes[axis] = 0
        mod = torch.vmap(mod, in_dims=(*scores, *axes))

    def mapped(*arguments: Tensor) -> Tensor:
        with indexing_under_vmap():
            return mod(*arguments)

    return mapped


def capture(mode: "CaptureMode", func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    out = func(*args, **kwargs)
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
    arguments = {**dict(zip(names, args, strict=False)), **kwargs}
    frame, recorder = mode.frame, mode.recorder
    q, k, v = arguments["query"], arguments["key"], arguments["value"]
    kind = attention_kind(frame, q, k, False)
    weights = FlexMap(q, k, arguments["scale"], arguments["score_mod"], arguments["block_mask"][-1])
    step = recorder.step(frame.name, kind, q.shape[-2], cached_keys(weights) if kind == "self" else 0, v)
    if recorder.is_selected(frame.name):
        recorder.keep(frame, CapturedCall(weights, v, out[0], "flex_attention", kind, step, expected=out[0]))
    return out
