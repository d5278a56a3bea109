"""eager: the equation as written. Refuses nothing; the reference for all others."""

from regard.attn.call import Attended, AttentionCall, equation


def refuse(call: AttentionCall) -> str | None:
    return None


def pass_over(call: AttentionCall) -> str | None:
    return None


def describe(call: AttentionCall) -> str:
    return "the equation as written, in torch; forms all weights"


def run(call: AttentionCall) -> Attended:
    return equation(call)
