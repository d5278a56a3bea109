"""Backends: ways to compute the equation. Each refuses, with a sentence, or runs; the first that is willing runs."""

from types import ModuleType

from regard.attn import checks
from regard.attn.backends import additive, blocked, eager, fused, linear
from regard.attn.call import AttentionCall

# in the order of preference
BACKENDS: dict[str, ModuleType] = {
    "additive": additive,
    "linear": linear,
    "blocked": blocked,
    "fused": fused,
    "eager": eager,
}


def choose(call: AttentionCall, forced: str | None = None) -> ModuleType:
    """The backend that runs the call; one that is forced may not refuse it."""
    if forced is not None:
        checks.known("backend", forced, BACKENDS)
        reason = BACKENDS[forced].refuse(call)
        if reason is not None:
            raise ValueError(
                f"backend {forced!r} cannot run this: {reason}; leave backend out, or use 'eager', which can"
            )
        return BACKENDS[forced]
    for backend in BACKENDS.values():
        if backend.refuse(call) is None and backend.pass_over(call) is None:
            return backend
    raise AssertionError("eager refuses nothing")


def explain(call: AttentionCall, forced: str | None = None) -> str:
    """Which backend runs and, for each one passed over, why. Reads shapes and types, never values."""
    chosen = choose(call, forced)
    lines = []
    for name, backend in BACKENDS.items():
        refused = backend.refuse(call)
        if backend is chosen:
            lines.append(f"  {name:8} runs: {backend.describe(call)}")
        elif refused is not None:
            lines.append(f"  {name:8} cannot: {refused}")
        else:
            passed = backend.pass_over(call)
            lines.append(f"  {name:8} could, but " + (passed or f"{chosen.__name__.rsplit('.', 1)[-1]} comes first"))
    return "\n".join(lines)
