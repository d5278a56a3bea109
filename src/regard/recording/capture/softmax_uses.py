"""SoftmaxUses: how the output of every softmax of a model is used, to tell attention that was not recorded."""

from typing import Any

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from regard.kernels.dispatch import in_functorch_transform
from regard.recording.capture.torch_functions import ADDITIONS, PRODUCTS, SUMS, TorchCall, all_tensors
from regard.recording.capture.tracked_tensors import SoftmaxFact, is_features, sums_over

# the output of a softmax is followed through at most this many calls that no handler knows
_MAX_DISTANCE = 6


class SoftmaxUses:
    """Follows weights through calls that no handler knows."""

    def __init__(self, weights: WeakIdKeyDictionary) -> None:
        self._weights = weights
        # results of such calls: the softmax they come from, and how many calls ago
        self.traces: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self.softmaxes: list[SoftmaxFact] = []

    def unrecognised(self) -> list[str]:
        """Names of modules with a softmax that looks like attention and was not recorded."""
        missed = [
            fact
            for fact in self.softmaxes
            if (fact.is_mixed or (fact.is_used and (fact.of_queries or fact.in_attention))) and not fact.is_recorded
        ]
        return list(dict.fromkeys(fact.name for fact in missed))

    def note_use(self, call: TorchCall) -> None:
        """Notes whether a call without a handler mixes something by weights, or computes something from them."""
        out, func = call.out, call.func
        outs = all_tensors(out if isinstance(out, tuple | list) else [out])
        outs = [t for t in outs if t.ndim and t.is_floating_point()]
        arguments = call.tensors()
        if not outs:
            for t in arguments if isinstance(out, Tensor) else ():
                self.note_result(t)
            return
        origins = [self.origin(t) for t in arguments]
        for argument, (softmax, distance) in zip(arguments, origins, strict=True):
            if softmax is None or softmax.is_recorded or softmax.is_mixed or outs[0] is argument:
                continue
            softmax.is_used = True
            # weights broadcast over another tensor are a product that is summed later
            alone = all(
                origin is softmax or not t.is_floating_point()
                for t, (origin, _) in zip(arguments, origins, strict=True)
            )
            is_argument = any(t is argument for t in (*call.args, *call.kwargs.values()))
            is_broadcast = is_argument and not alone and outs[0].numel() > argument.numel() and func not in ADDITIONS
            if func in PRODUCTS or is_broadcast or (func in SUMS and self._is_pooling(argument, call)):
                softmax.is_mixed = True
            elif distance < _MAX_DISTANCE:
                for result in outs:
                    if result.shape[-1] > 1 or result.numel() == argument.numel():
                        self.traces[result] = (softmax, distance + 1)

    def note_result(self, value: Any) -> None:
        """Notes weights that leave a module, or that become a number of another type."""
        if isinstance(value, Tensor):
            softmax, _ = self.origin(value)
            if softmax is not None:
                softmax.is_used = True
        elif isinstance(value, tuple | list | dict):
            for item in value.values() if isinstance(value, dict) else value:
                self.note_result(item)

    def _is_pooling(self, summed: Tensor, call: TorchCall) -> bool:
        """Whether the call sums features that were each multiplied by a weight of its own."""
        fact = self._weights.get(summed)
        if fact is None or fact.factor is None:
            return False
        axis = -2 if fact.is_transposed else -1
        is_sum = sums_over(axis, call, summed.ndim) and not in_functorch_transform()
        return is_sum and is_features(fact.factor, axis)

    def origin(self, value: Any) -> tuple[SoftmaxFact | None, int]:
        """The softmax that a tensor was computed from, and the number of calls since then."""
        if not isinstance(value, Tensor):
            return None, 0
        fact = self._weights.get(value)
        return (fact.softmax, 0) if fact is not None else self.traces.get(value, (None, 0))
