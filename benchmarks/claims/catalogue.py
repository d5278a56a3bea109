"""CLAIMS: every claim by its name, in the order of the page.

A further claim is a `Claim` in the CLAIMS of a module, and the module is listed in _FAMILIES; then
`python -m benchmarks.claims NAME --seeds 3` measures it and `--docs` puts it on the page.
"""

from benchmarks.claims import (
    distance,
    duration,
    features,
    inference,
    lookup,
    mechanisms,
    order,
    robustness,
    selection,
    sentences,
    sizes,
)
from benchmarks.claims.claim import Claim

_FAMILIES = (
    distance,
    duration,
    order,
    lookup,
    sentences,
    selection,
    inference,
    features,
    sizes,
    mechanisms,
    robustness,
)
CLAIMS: dict[str, Claim] = {claim.name: claim for family in _FAMILIES for claim in family.CLAIMS}
