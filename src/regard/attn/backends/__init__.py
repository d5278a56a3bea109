"""Backends: implementations of the equation. Each gives the reason why it cannot run a call, or runs it; the first that
can is used.
"""

from regard.attn.backends.choice import BACKENDS, LayerPath, choose, explain, trace_path

__all__ = ["BACKENDS", "LayerPath", "choose", "explain", "trace_path"]
