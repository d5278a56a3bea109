"""docs/claims.md: the claims with their numbers and verdicts, from the result files."""

import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks import measured
from benchmarks.claims.catalogue import CLAIMS
from benchmarks.claims.claim import Claim, Measured

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "claims"
PAGE = ROOT / "docs" / "claims.md"
IMAGES = ROOT / "docs" / "images" / "claims"

INTRO = """\
The literature makes claims for attention: long dependencies, parallel computation, constant path length. This page
tests them by small experiments, and says where they hold and where not. Sizes are tiny, so that every claim takes a
minute or two of one core: a claim that does not hold here may hold at other sizes, and the reverse.

Each section has the claim, its source, the experiment with its sizes, the command that repeats it, the verdict and the
criteria that it follows from. A criterion is a sentence that the claim implies; it compares the worst seed of one side
with the best of the other unless it says otherwise. If all are met, the claim *holds*; if some are, it *holds in part*;
otherwise it *does not hold here*. Figures and tables show the mean over the seeds, and the range from the lowest to the
highest seed: vertical bars in figures, brackets in tables.

Not all criteria were fixed before the first results: some of those on time, positions, hard attention and sparse
attention were set or changed after them. Those four verdicts describe the results and do not predict them.
"""
AFTER = """\
`python -m benchmarks.claims --docs` writes this page and its figures from `benchmarks/results/claims/`. The strings are
those of `--data recall`, which [classify-text](guides/classify-text.md) and
[language-model](guides/language-model.md) train on as well.
"""


def read_results(folder: Path = RESULTS) -> dict[str, Measured]:
    """The results that are there, in the order of the claims."""
    found = {name: Measured.read(folder / f"{name}.json") for name in CLAIMS}
    return {name: result for name, result in found.items() if result is not None}


def page(results: Mapping[str, Measured]) -> str:
    """The whole page."""
    rows = [
        [f"[{CLAIMS[name].title}](#{anchor(CLAIMS[name].title)})", CLAIMS[name].source, CLAIMS[name].verdict(result)]
        for name, result in results.items()
    ]
    return "\n".join(
        [
            "# Claims about attention\n",
            INTRO,
            measured.table(["claim", "source", "verdict"], rows),
            measured.conditions((name, result.about) for name, result in results.items()),
            *(section(CLAIMS[name], result) for name, result in results.items()),
            "## Repeat all\n",
            AFTER,
        ]
    )


def anchor(title: str) -> str:
    """The address of a heading on its page."""
    return re.sub(r"[^\w\s-]", "", title.lower()).replace(" ", "-")


def section(claim: Claim, result: Measured) -> str:
    """One claim."""
    criteria = "".join(f"- {'met' if item.is_met(result) else 'not met'}: {item.text}\n" for item in claim.criteria)
    tables = "\n".join(f"{panel.y}, by {panel.x}:\n\n{numbers(claim, result, n)}" for n, panel in claim.panels.items())
    sizes = claim.setup.format(**result.settings)
    return f"""\
## {claim.title}

> {claim.says}

Source: {claim.source}.

{sizes} {result.seeds} seeds, {result.cpu:,.0f} s of CPU on one thread, {result.about.date}.

```bash
python -m benchmarks.claims {claim.name} --seeds {result.seeds}
```

![{claim.title}: mean and range of {result.seeds} seeds](images/claims/{claim.name}.svg)

Verdict: **{claim.verdict(result)}**

{criteria}
{tables}"""


def numbers(claim: Claim, result: Measured, panel: str) -> str:
    """The table of one panel: a row per curve, the mean and the range of the seeds in each cell."""
    xs, digits = result.xs(panel), claim.panels[panel].digits
    rows = []
    for series in result.series(panel):
        cells = []
        for x in xs:
            if not result.has(panel, series, x):
                cells.append("–")
                continue
            point = result.at(panel, series, x)
            mean, low, high = (_short(value, digits) for value in (point.mean, point.low, point.high))
            cells.append(mean if low == high else f"{mean} [{low}, {high}]")
        rows.append([series, *cells])
    return measured.table(["", *(x if isinstance(x, str) else f"{x:g}" for x in xs)], rows)


def _short(value: float, digits: int) -> str:
    """The number with so many digits behind the point, or with an exponent if these would all be zero."""
    return f"{value:.1e}" if value and abs(value) < 10.0**-digits else f"{value:,.{digits}f}"
