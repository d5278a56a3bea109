"""eager: the equation as written. Runs every call; the reference for all other backends."""

from regard.attn.call import Attended, AttentionCall, equation


def unsupported_reason(call: AttentionCall) -> str | None:
    return None


def skip_reason(call: AttentionCall) -> str | None:
    return None


def describe(call: AttentionCall) -> str:
    return "the equation as written, in torch; forms all weights"


def run(call: AttentionCall) -> Attended:
    return equation(call)
