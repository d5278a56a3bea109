"""CaptureMode: sees every torch call of this thread and hands those that attend to the module that captures them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from regard.kernels.dispatch import in_functorch_transform
from regard.recording.capture import eager, flex, multihead, sdpa
from regard.recording.capture.linear_tape import LINEAR, LinearTape
from regard.recording.capture.module_stack import ModuleFrame
from regard.recording.capture.recorder import Recorder
from regard.recording.capture.torch_functions import REARRANGES, TorchCall

# runs func(*args, **kwargs), captures it and returns its result
Capture = Callable[["CaptureMode", Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]

aten = torch.ops.aten
_ATTENTION: dict[Any, Capture] = {
    F.scaled_dot_product_attention: sdpa.capture,
    aten.scaled_dot_product_attention: sdpa.capture,
    aten.scaled_dot_product_attention.default: sdpa.capture,
    F.multi_head_attention_forward: multihead.capture,
}
# calls that are captured whatever was called before
_CAPTURED = {*_ATTENTION, *eager.START}


class CaptureMode(TorchFunctionMode):
    """Captures calls for a recorder. Inside a capture function the mode is off, so that nothing is captured twice."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder
        recorder.mode = self
        self.eager = eager.EagerTracker(recorder.module_stack, recorder.is_selected, lambda: self.frame)
        self.tape = LinearTape()
        recorder.module_stack.on_leave = self._leave
        # the attention that the running calls are part of, where their arguments do not show it
        self.captured_from: str | None = None
        self.heads: int | None = None
        self._enclosing: ModuleFrame | None = None
        self._images = recorder.module_stack.images.data  # empty unless the model cuts images into patches
        self._frames = recorder.module_stack.stack
        self._scores, self._weights, self._traces, self._logarithms = self.eager.followed

    @property
    def frame(self) -> ModuleFrame:
        return self.recorder.module_stack.current if self._enclosing is None else self._enclosing

    @property
    def call_number(self) -> int:
        """The number of the call of the running module; 0 outside of modules."""
        return self.recorder.module_stack.current.number

    def finish(self) -> None:
        """Joins the pieces of attention outside of modules."""
        self._join_pieces(self.recorder.module_stack.current)

    def _leave(self, frame: ModuleFrame, out: Any) -> None:
        if self.eager.has_weights:
            self.eager.uses.note_result(out)
        self._join_pieces(frame)

    def _join_pieces(self, frame: ModuleFrame) -> None:
        """Records attention that a module computed in pieces as one map."""
        groups = self.tape.take(frame.number)
        if not groups:
            return
        with self.recorder.muted(), torch.no_grad(), torch.inference_mode(False):
            self.recorder.join_pieces(frame, groups)

    @contextmanager
    def inside(self, captured_from: str, frame: ModuleFrame, heads: int) -> Iterator[None]:
        """Captures the calls inside as parts of one attention with `heads` heads."""
        before = self.captured_from, self._enclosing, self.heads
        self.captured_from, self._enclosing, self.heads = captured_from, frame, heads
        try:
            with self:
                yield
        finally:
            self.captured_from, self._enclosing, self.heads = before

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.recorder.pauses or (not self._frames and self._is_foreign(func)):
            return func(*args, **kwargs)
        is_followed = (
            func in _CAPTURED
            or self._scores
            or self._weights
            or self._traces
            or self._logarithms
            or self._images
            or type(func).__name__ == "FlexAttentionHOP"
        )
        out = self._run(func, args, kwargs) if is_followed else func(*args, **kwargs)
        if func in LINEAR and not in_functorch_transform():
            self.tape.note(func, out, args, kwargs, self.call_number)
        return out

    def _is_foreign(self, func: Any) -> bool:
        """Whether a call that would be captured belongs to a module outside of the model."""
        is_attention = func in _ATTENTION or type(func).__name__ == "FlexAttentionHOP"
        if not is_attention and func not in eager.START:
            return False
        is_attention = is_attention or func in eager.SOFTMAX
        return self.recorder.module_stack.is_foreign_call(is_attention=is_attention)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call, captured if it attends."""
        capture = _ATTENTION.get(func)
        handler = self.eager.handler(func) if capture is None else None
        images = self.recorder.module_stack.images
        if self._images and args and isinstance(args[0], torch.Tensor) and args[0] in images and func in REARRANGES:
            out = func(*args, **kwargs)
            self.recorder.module_stack.track_reshape(args[0], out)
            return out
        if handler is not None:
            return self.eager.run(handler, self, func, args, kwargs)
        if capture is None and type(func).__name__ == "FlexAttentionHOP":
            capture = flex.capture
        if capture is None:
            out = func(*args, **kwargs)
            if self.eager.has_weights:
                self.eager.uses.note_use(TorchCall(func, out, args, kwargs))
            return out
        if in_functorch_transform():
            raise self.transform_error()
        return capture(self, func, args, kwargs)

    def transform_error(self) -> RuntimeError:
        """The refusal of attention inside a transform of torch.func."""
        return RuntimeError(
            f"record cannot capture calls inside torch.func: {self.frame.name or 'the model'!r} attends under "
            "vmap or grad; record a plain call, and pass gradients=True for gradients"
        )
