"""PendingCertificates: maps that wait for their certificates, so that those of equal layers are computed together."""

import copy
from collections.abc import Hashable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attn.call import SOFTMAX, AttentionCall
from regard.attn.maps.attention_map import AttentionMap, LazyMap
from regard.attn.terms.mask import BooleanMask, Causal
from regard.attn.terms.score import Dot
from regard.kernels.dispatch import autocast_disabled
from regard.recording.capture import certificate
from regard.recording.capture.certificate import Certificate
from regard.recording.recorded_map import RecordedMap

# a map whose values and output take more bytes is certified at once, and so are all when they take so many together
_MOST_OF_ONE, _MOST = 1 << 20, 1 << 23
_COPIED = ("queries", "keys")


class WaitingMap(NamedTuple):
    """A copied map without its certificate, and copies of the values and the output that it is compared with."""

    weights: LazyMap
    v: Tensor  # "*b k v"
    out: Tensor  # "*b rows v", the rows that are checked


class PendingCertificates:
    """Softmax of dot products, by copies of queries and keys, until the model has run."""

    def __init__(self, tolerance: float | None) -> None:
        self._tolerance = tolerance
        self._waiting: list[WaitingMap] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        return self._bytes > _MOST

    def add(self, weights: AttentionMap, v: Tensor, out: Tensor) -> bool:  # "*b q k", "*b k v", "*b q v"
        """Whether the certificate of a copied map will be computed later, together with others.

        Values, and the rows of the output that are checked, are copied: the model may write to them.
        """
        if not isinstance(weights, LazyMap) or not _can_wait(weights, v, out):
            return False
        output = out[..., certificate.rows_of(out.shape[-2], out.device), :].clone()
        self._waiting.append(WaitingMap(weights, v.clone(), output))
        self._bytes += v.nbytes + output.nbytes
        return True

    def settle(self, maps: list[RecordedMap]) -> None:
        """Puts the certificates into `maps`."""
        groups: dict[Hashable, list[WaitingMap]] = {}
        for waiting in self._waiting:
            groups.setdefault(_group_of(waiting), []).append(waiting)
        certified: dict[int, Certificate] = {}
        for group in groups.values():
            found = _certify(group, self._tolerance)
            certified |= {id(waiting.weights): each for waiting, each in zip(group, found, strict=True)}
        for n, recorded_map in enumerate(maps):
            each = certified.get(id(recorded_map.weights))
            if each is not None:
                maps[n] = replace(recorded_map, certificate=each.certificate, tolerance=each.tolerance)
        self._waiting.clear()
        self._bytes = 0


def _can_wait(weights: LazyMap, v: Tensor, out: Tensor) -> bool:
    call = weights.call
    return (
        type(call.score) is Dot
        and call.normalize is SOFTMAX
        and call.bias is None
        and (call.mask is None or (type(call.mask) is Causal and _has_one_row(call)) or _has_all_axes(call))
        and all(t.ndim == len(call.batch) + 2 for t in (call.queries, call.keys, v, out))
        and not weights.picked_index
        and 0 < v.nbytes + out.nbytes <= _MOST_OF_ONE
        and 0 not in weights.shape
        and out.numel() > 0
    )


def _has_all_axes(call: AttentionCall) -> bool:
    """Whether an axis before those of the mask is an axis before those of the scores."""
    return type(call.mask) is BooleanMask and call.mask.allowed.ndim == len(call.batch) + 2


def _has_one_row(call: AttentionCall) -> bool:
    """Whether all samples have the same positions."""
    return call.explicit_positions is None or all(t.ndim == 1 for t in call.explicit_positions)


def _group_of(waiting: WaitingMap) -> Hashable:
    """Equal for maps that one computation can certify: of the same shapes and types, and behind the same mask."""
    call = waiting.weights.call
    tensors = (call.queries, call.keys, waiting.v, waiting.out)
    mask: Hashable = None
    if isinstance(call.mask, BooleanMask):
        mask = id(call.mask.allowed)
    elif call.mask is not None:
        mask = (Causal, *(id(t) for t in call.explicit_positions or ()))
    assert isinstance(call.score, Dot)
    return (call.score.scale, call.group, mask, *((t.shape, t.dtype, t.device) for t in tensors))


def _certify(group: list[WaitingMap], tolerance: float | None) -> list[Certificate]:
    """The certificates of maps of one group, whose weights are the rows of one map with an axis more."""
    first, call = group[0].weights, group[0].weights.call
    queries, keys = (torch.stack([getattr(waiting.weights.call, name) for waiting in group]) for name in _COPIED)
    mask = BooleanMask(call.mask.allowed.unsqueeze(0)) if isinstance(call.mask, BooleanMask) else call.mask
    stacked = copy.copy(first)
    stacked.call = replace(
        call, q=queries, queries=queries, keys=keys, mask=mask, batch=(len(group), *call.batch), v=call.v.unsqueeze(0)
    )
    values, output = (torch.stack([getattr(waiting, name) for waiting in group]) for name in ("v", "out"))
    with autocast_disabled(first.device):
        p = stacked.rows(certificate.rows_of(first.shape[-2], first.device))
        return certificate.compare(p, certificate.repeat_heads(values, p), output, tolerance)
