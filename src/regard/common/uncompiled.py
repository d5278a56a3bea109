"""A context in which compiled models run as they are written."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def uncompiled() -> Iterator[None]:
    """A compiled graph calls neither hooks nor function modes, so models run uncompiled in the block."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield
