"""The choice of the backend that runs a call, and the reasons against the others."""

from types import ModuleType
from typing import NamedTuple

from regard.attn.backends import additive, blocked, eager, flash, flex, fused, linear, padded, relative, triton, varlen
from regard.attn.call import AttentionCall
from regard.attn.observer import current_trace
from regard.common import checks

# backends in the order of preference on a CPU; eager refuses nothing, and those behind it run there if forced by name
BACKENDS: dict[str, ModuleType] = {
    "additive": additive,
    "linear": linear,
    "relative": relative,
    "padded": padded,
    "flash": flash,
    "fused": fused,
    "blocked": blocked,
    "eager": eager,
    "flex": flex,
}
# the same on every other device, without the kernels for CPUs
_OFF_CPU = (
    "varlen",
    "flex",
    "fused",
    "triton",
    "additive",
    "linear",
    "blocked",
    "eager",
)
# with those that no CPU runs
_EVERY = {**BACKENDS, "varlen": varlen, "triton": triton}


def _candidates(call: AttentionCall) -> dict[str, ModuleType]:
    """The backends of the call's device in the order of preference."""
    if call.q.device.type == "cpu":
        return BACKENDS
    return {name: _EVERY[name] for name in _OFF_CPU}


def choose(call: AttentionCall, forced: str | None = None) -> ModuleType:
    """The backend that runs the call; raises if a forced backend cannot run it."""
    if forced is not None:
        checks.known("backend", forced, _EVERY)
        reason = _EVERY[forced].unsupported_reason(call)
        if reason is not None:
            raise ValueError(
                f"backend {forced!r} cannot run this: {reason}; leave backend out, or use 'eager', which can"
            )
        return _EVERY[forced]
    for backend in _candidates(call).values():
        if backend.unsupported_reason(call) is None and backend.skip_reason(call) is None:
            return backend
    raise AssertionError("eager refuses nothing")


class LayerPath(NamedTuple):
    """One function for a whole layer, projections included, which comes before all backends."""

    name: str
    reason: str | None  # the reason why it cannot run; None: it runs
    description: str

    def __str__(self) -> str:
        return f"  {self.name:8} " + (f"cannot: {self.reason}" if self.reason else f"runs: {self.description}")


def trace_path(owner: object, name: str, plan: object, description: str) -> None:
    """Explains a path of several layers, whose plan may be the reason why it cannot run, to the current trace."""
    trace = current_trace()
    if trace is not None:
        trace.entries.append((owner, str(LayerPath(name, plan if isinstance(plan, str) else None, description))))


def explain(call: AttentionCall, forced: str | None = None, path: LayerPath | None = None) -> str:
    """Names the backend or the path that runs and gives, for every other one, the reason. Reads shapes and types, never
    values.
    """
    chosen, lines = choose(call, forced), []
    candidates = {**_candidates(call), **({} if forced is None else {forced: chosen})}
    winner = next(name for name, backend in candidates.items() if backend is chosen)
    if path is not None:
        winner = winner if path.reason else path.name
        lines.append(str(path))
    for name, backend in candidates.items():
        unsupported = backend.unsupported_reason(call)
        if name == winner:
            lines.append(f"  {name:8} runs: {backend.describe(call)}")
        elif unsupported is not None:
            lines.append(f"  {name:8} cannot: {unsupported}")
        else:
            lines.append(f"  {name:8} could, but {backend.skip_reason(call) or f'{winner} comes first'}")
    return "\n".join(lines)
