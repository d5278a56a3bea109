"""PendingCertificates: maps that wait for their certificates, so that those of equal layers are computed together."""

import copy
import threading
from collections.abc import Hashable
from dataclasses import replace

import torch
from torch import Tensor

from regard.attn.call import SOFTMAX, AttentionCall
from regard.attn.maps.attention_map import AttentionMap, LazyMap
from regard.attn.terms.mask import BooleanMask
from regard.attn.terms.score import Dot
from regard.attn.terms.sequence_masks import Causal
from regard.kernels.dispatch import autocast_disabled
from regard.recording.capture import certificate
from regard.recording.capture.certificate import Certificate

# a map whose values and output take more bytes is certified at once; when all together take as many, all are
_MOST_OF_ONE, _MOST = 1 << 20, 1 << 23
_COPIED = ("queries", "keys")
# maps of one recording may be read by several threads; not a part of it, so that it can be pickled
_SETTLING = threading.RLock()


class PendingCertificate:
    """The certificate of a copied map, and copies of the values and the output that the map is compared with."""

    def __init__(self, pending: "PendingCertificates", weights: LazyMap, v: Tensor, out: Tensor) -> None:
        self._pending = pending
        self.weights = weights
        self.v = v  # "*b k v"
        self.out = out  # "*b rows v", the rows that are checked
        self.computed: Certificate | None = None

    def certificate(self) -> float:
        return self._certified().certificate

    def tolerance(self) -> float:
        return self._certified().tolerance

    def _certified(self) -> Certificate:
        with _SETTLING:
            if self.computed is None:
                self._pending.settle()
        assert self.computed is not None
        return self.computed


class PendingCertificates:
    """Softmax of dot products, by copies of queries and keys, until the first certificate is read."""

    def __init__(self, tolerance: float | None) -> None:
        self._tolerance = tolerance
        self._waiting: list[PendingCertificate] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._bytes > _MOST

    def add(self, weights: AttentionMap, v: Tensor, out: Tensor) -> PendingCertificate | None:
        """The certificate of a copied map, which will be computed together with others; None if it cannot wait.

        Values, "*b k v", and the rows of the output that are checked, of "*b q v", are copied: the model may write to
        them.
        """
        if not isinstance(weights, LazyMap) or not _can_wait(weights, v, out):
            return None
        rows = certificate.rows_of(out.shape[-2], out.device)
        output = out.clone() if isinstance(rows, slice) else out[..., rows, :]
        waiting = PendingCertificate(self, weights, v.clone(), output)
        self._waiting.append(waiting)
        self._bytes += v.nbytes + output.nbytes
        return waiting

    def settle(self) -> None:
        """Computes the certificates that are pending."""
        with _SETTLING:
            self._settle()

    def _settle(self) -> None:
        groups: dict[Hashable, list[PendingCertificate]] = {}
        for waiting in self._waiting:
            groups.setdefault(_group_of(waiting), []).append(waiting)
        # a record that is running must not see this
        with torch._C.DisableTorchFunction(), torch.no_grad(), torch.inference_mode(False):
            for group in groups.values():
                for waiting, computed in zip(group, _certify(group, self._tolerance), strict=True):
                    waiting.computed = computed
                    del waiting.weights, waiting.v, waiting.out
        self._waiting.clear()
        self._bytes = 0


def _can_wait(weights: LazyMap, v: Tensor, out: Tensor) -> bool:
    call, axes = weights.call, len(weights.call.batch) + 2
    return (
        type(call.score) is Dot
        and call.normalize is SOFTMAX
        and call.bias is None
        and (call.mask is None or (type(call.mask) is Causal and _has_one_row(call)) or _has_all_axes(call))
        and call.queries.ndim == call.keys.ndim == v.ndim == out.ndim == axes
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


def _group_of(waiting: PendingCertificate) -> Hashable:
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


def _certify(group: list[PendingCertificate], tolerance: float | None) -> list[Certificate]:
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
