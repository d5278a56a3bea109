"""The choice of the backend that runs a call, and the reasons against the others."""

from types import ModuleType

from regard.attn.backends import additive, blocked, eager, flash, fused, linear, padded, relative
from regard.attn.call import AttentionCall
from regard.common import checks

# backends in the order of preference on a CPU
BACKENDS: dict[str, ModuleType] = {
    "additive": additive,
    "linear": linear,
    "relative": relative,
    "padded": padded,
    "flash": flash,
    "fused": fused,
    "blocked": blocked,
    "eager": eager,
}
# the same on every other device; the rest are kernels for CPUs
_OFF_CPU = ("additive", "linear", "fused", "blocked", "eager")


def _candidates(call: AttentionCall) -> dict[str, ModuleType]:
    """The backends of the call's device in the order of preference."""
    if call.q.device.type == "cpu":
        return BACKENDS
    return {name: BACKENDS[name] for name in _OFF_CPU}


def choose(call: AttentionCall, forced: str | None = None) -> ModuleType:
    """The backend that runs the call; raises if a forced backend cannot run it."""
    if forced is not None:
        checks.known("backend", forced, BACKENDS)
        reason = BACKENDS[forced].unsupported_reason(call)
        if reason is not None:
            raise ValueError(
                f"backend {forced!r} cannot run this: {reason}; leave backend out, or use 'eager', which can"
            )
        return BACKENDS[forced]
    for backend in _candidates(call).values():
        if backend.unsupported_reason(call) is None and backend.skip_reason(call) is None:
            return backend
    raise AssertionError("eager refuses nothing")


def explain(call: AttentionCall, forced: str | None = None) -> str:
    """Names the backend that runs and gives, for every other one, the reason. Reads shapes and types, never values."""
    chosen = choose(call, forced)
    lines = []
    for name, backend in _candidates(call).items():
        unsupported = backend.unsupported_reason(call)
        if backend is chosen:
            lines.append(f"  {name:8} runs: {backend.describe(call)}")
        elif unsupported is not None:
            lines.append(f"  {name:8} cannot: {unsupported}")
        else:
            skipped = backend.skip_reason(call)
            lines.append(f"  {name:8} could, but " + (skipped or f"{chosen.__name__.rsplit('.', 1)[-1]} comes first"))
    return "\n".join(lines)
