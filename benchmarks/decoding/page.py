"""docs/decoding.md: the tables of decoding step by step."""

from pathlib import Path

from benchmarks import report
from benchmarks.table import markdown, summary

TITLES = {
    "steps": "Steps with a cache",
    "translation": "Translation against CTranslate2",
    "generation": "GPT-2 against transformers and plain torch",
    "int8": "8-bit weights",
    "batches": "Translations in batches",
    "requests": "Requests of a language model in one batch",
}
RESULTS = report.RESULTS / "decoding"
PAGE = report.ROOT / "docs" / "decoding.md"


def page(folder: Path = RESULTS) -> str:
    """docs/decoding.md"""
    parts = []
    for name, title in TITLES.items():
        results = report.read(folder / f"{name}.json")
        parts.append(f"## {title}\n\n{results.conditions()}\n{summary(results.rows)}\n\n{markdown(results.rows)}")
    return f"""\
# Speed of decoding

This page compares the cost of decoding one token at a time. `python -m benchmarks --docs` writes it from the tables in
`benchmarks/results/decoding/`. Every row is measured on one thread in CPU time, interleaved with its peer; ratios are
medians of paired repetitions, with quartiles. The lean loop is a bare loop in torch: one product for q, k and v, a
cache of the full length and SDPA. CTranslate2 gets the same weights, which `benchmarks/peers` writes in its format.
Generation is greedy, with random weights that transformers wrote into a folder and regard read from it; the tokens of
both must be the same. The prompt is read in one pass. With 8-bit weights tokens may differ from those of float32;
CTranslate2 gets the same weights and rounds them itself.

{chr(10).join(parts)}
Commands to measure on your machine:

```bash
python -m benchmarks steps translation generation      # about six minutes
python -m benchmarks steps/multi-head --quick      # one case
python -m benchmarks int8 --run RUN --encoder FOLDER --texts FILE      # 8-bit weights
python -m benchmarks batches --run RUN      # a run of translate; requests: of language-model
python -m benchmarks --docs      # this page
```
"""
