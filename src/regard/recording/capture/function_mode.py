"""The ear: it hears every call of torch in this thread, and hands those that attend to whoever understands them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from regard.attn.nonfinite import transformed
from regard.recording.capture import eager, flex, multihead, sdpa
from regard.recording.capture.module_stack import ModuleFrame
from regard.recording.capture.recorder import Recorder
from regard.recording.capture.torch_functions import LAYS_OUT

Hear = Callable[["CaptureMode", Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]

aten = torch.ops.aten
_ATTEND: dict[Any, Hear] = {
    F.scaled_dot_product_attention: sdpa.hear,
    aten.scaled_dot_product_attention: sdpa.hear,
    aten.scaled_dot_product_attention.default: sdpa.hear,
    F.multi_head_attention_forward: multihead.hear,
}


class CaptureMode(TorchFunctionMode):
    """Listens for a recorder. Inside one of its own handlers nothing is heard, so that nothing is heard twice."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder
        recorder.mode = self
        self.eager = eager.EagerTracker(self)
        # what the attention that runs is part of, where that says more than its arguments
        self.captured_from: str | None = None
        self.around: ModuleFrame | None = None
        self.heads: int | None = None
        self._hear: dict[Any, Hear] = {**_ATTEND, **self.eager.begin}
        self._follow = self.eager.follow

    @property
    def frame(self) -> ModuleFrame:
        return self.recorder.places.here if self.around is None else self.around

    @contextmanager
    def inside(self, how: str, frame: ModuleFrame, heads: int) -> Iterator[None]:
        """What is heard now is part of an attention called `how`, with so many heads."""
        before = self.captured_from, self.around, self.heads
        self.captured_from, self.around, self.heads = how, frame, heads
        try:
            with self:
                yield
        finally:
            self.captured_from, self.around, self.heads = before

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.recorder.silent:
            return func(*args, **kwargs)
        hear = self._hear.get(func)
        if hear is None and not self.eager.idle:
            hear = self._follow.get(func)
        images = self.recorder.places.images
        if images.data and args and isinstance(args[0], torch.Tensor) and args[0] in images and func in LAYS_OUT:
            out = func(*args, **kwargs)
            self.recorder.places.laid(args[0], out)
            return out
        if hear is None and type(func).__name__ == "FlexAttentionHOP":
            hear = flex.hear
        if hear is None:
            out = func(*args, **kwargs)
            if self.eager.holds:
                self.eager.touched(func, out, args, kwargs)
            return out
        if hear in (sdpa.hear, multihead.hear, flex.hear) and transformed():
            raise RuntimeError(
                f"record cannot listen inside torch.func: {self.frame.name or 'the model'!r} attends under vmap or "
                "grad; record a plain call, and take gradients by gradients=True"
            )
        return hear(self, func, args, kwargs)
