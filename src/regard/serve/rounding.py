"""settle: answers that do not depend on the batch in which they were computed.

A matrix product of float32 sums in an order that depends on the number of rows, so the last digits of a number depend
on its batch. The numbers of an answer are rounded; two batches then give equal numbers unless the end of an interval of
rounding lies between them. So an output is computed again, alone, if a number is closer than the noise to such an end,
or if a decision behind it was as close (`Predictor.margin`). Every answer is the rounded answer of the input alone, as
long as batches change no number by more than the noise.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from regard.decoding.margins import NOISE

Output = TypeVar("Output")

# decimals of attention weights, which are computed for one input at a time
WEIGHT_DECIMALS = 7


class Precision(NamedTuple):
    """The rounding of a number, to this many decimals and significant digits; its batch changes it by at most `noise`
    times the sum of its size and `floor`."""

    decimals: int
    digits: int
    noise: float
    floor: float


# probabilities, whose noise is that of their logarithm
_SHARE = Precision(decimals=3, digits=3, noise=1.5e-6, floor=0.0)
# sums over tokens
_SUM = Precision(decimals=3, digits=3, noise=NOISE, floor=0.1)
# shares of width and height
_LOCATION = Precision(decimals=3, digits=3, noise=1.5e-6, floor=0.1)
_NAMED = {"log_prob": _SUM, "score": _SUM, "x": _LOCATION, "y": _LOCATION}


def settle(
    outputs: Sequence[Output],
    inputs: Sequence[Any],
    predict: Callable[[list[Any]], Sequence[Output]],
    write: Callable[[Output], dict[str, Any]],
    margin: Callable[[Output], float],
) -> list[dict[str, Any]]:
    """The JSON of each output, rounded, as that of its input alone; `predict` is rarely called, with one input."""
    settled = []
    for example, output in zip(inputs, outputs, strict=True):
        written = write(output)
        if margin(output) <= NOISE or not is_clear(written):
            (alone,) = predict([example])
            written = write(alone)
        settled.append(rounded(written))
    return settled


def rounded(value: Any, name: str = "") -> Any:
    """JSON with all its numbers rounded; `name` is the one under which the value stands."""
    if isinstance(value, float):
        # a sum, because −0.0 + 0.0 is 0.0
        return round(value, _decimals(value, _NAMED.get(name, _SHARE))) + 0.0 if math.isfinite(value) else value
    if isinstance(value, Mapping):
        return {key: rounded(item, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item, name) for item in value]
    return value


def is_clear(value: Any, name: str = "") -> bool:
    """Whether a change of each number by its noise changes no rounded number."""
    if isinstance(value, float):
        return _is_inside(value, name)
    if isinstance(value, Mapping):
        return all(is_clear(item, key) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(is_clear(item, name) for item in value)
    return True


def noise_of(number: float, name: str) -> float:
    """The most that a batch changes a number of this name by."""
    precision = _NAMED.get(name, _SHARE)
    return precision.noise * (abs(number) + precision.floor)


def _decimals(number: float, precision: Precision) -> int:
    before_point = math.floor(math.log10(abs(number))) + 1 if number else 0
    return max(0, min(precision.decimals, precision.digits - before_point))


def _is_inside(number: float, name: str) -> bool:
    """Whether a number is not at the end of an interval of rounding."""
    if not math.isfinite(number):
        return True
    scale = 10.0 ** _decimals(number, _NAMED.get(name, _SHARE))
    scaled = abs(number) * scale
    return abs(scaled - math.floor(scaled) - 0.5) > noise_of(number, name) * scale
