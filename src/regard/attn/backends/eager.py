"""eager: the equation as written. Refuses nothing; the reference for all others."""

from regard.attn.call import Attended, Call, equation


def refuse(call: Call) -> str | None:
    return None


def pass_over(call: Call) -> str | None:
    return None


def describe(call: Call) -> str:
    return "the equation as written, in torch; forms all weights"


def run(call: Call) -> Attended:
    return equation(call)
