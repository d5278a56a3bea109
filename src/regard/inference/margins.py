"""ranking_margin: how close a ranking came to another order.

A batch changes the last digits of numbers of float32; an output whose margin is above this noise is the same in every
batch.
"""

import math
from collections.abc import Sequence
from itertools import pairwise


def ranking_margin(numbers: Sequence[float], count: int) -> float:
    """The smallest gap between each of the first `count` numbers, which are sorted, and the next one, relative to it.

    Zeros are in no order, and infinite is the margin of a ranking that could not be another.
    """
    gaps = (abs(a - b) / max(abs(a), abs(b)) for a, b in pairwise(numbers[: count + 1]) if a or b)
    return min(gaps, default=math.inf)
