"""record on every class of transformers: `python -m benchmarks.zoo.recorder_sweep [names ...] [--again] [--docs]`.

Builds a tiny random model of every class in transformers' model mappings, records one call of it, and compares the maps
with the weights that its eager implementation forms. One line of JSON per class is written to results/zoo as soon as it
is known, so that a sweep that was stopped continues; a class has 30 seconds of CPU time and 8 GB.
"""

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

import regard
from benchmarks.zoo import eager_weights, recorder_page, sweep
from benchmarks.zoo.recorder_page import Recorded
from benchmarks.zoo.sweep import RESULTS, ROOT, SweepCommand, set_seed
from benchmarks.zoo.tiny_models import TinyModel
from regard.recording.recording import Recording

PAGE = ROOT / "docs" / "recorded-models.md"
# the greatest difference of two weights that are the same
TOLERANCE = 1e-3


def try_class(name: str, model_type: str) -> Recorded:
    return sweep.try_class(name, model_type, compare, Recorded)


def compare(name: str, model_type: str, tiny: TinyModel) -> Recorded:
    """Records a call and compares its maps with the eager weights."""
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        set_seed()
        with regard.record(tiny.model) as recording:
            tiny.model(**tiny.inputs)
    said = [str(warning.message) for warning in caught if str(warning.message).startswith("record ")]
    eager = eager_weights.collect(tiny, set_seed)
    faults = differences(recording, eager)
    assembled = any(m.captured_from == "pieces" for m in recording)
    counts = {
        "maps": len(recording),
        "eager": len(eager.reported),
        "missing": len(faults),
        "is_comparable": eager.is_comparable,
    }
    if not recording.maps and not eager.reported:
        verdict = "no attention" if said else "WRONG"
    elif said:
        verdict = "warned"
    else:
        verdict = "WRONG" if faults else "assembled" if assembled else "exact"
    return Recorded(name, model_type, verdict, " ".join(said)[:400] or "; ".join(faults)[:400], **counts)


def differences(recording: Recording, eager: eager_weights.EagerWeights) -> list[str]:
    """What is missing or wrong in a recording, in a few words each."""
    faults = []
    maps = {n: (m, m.weights.dense()) for n, m in enumerate(recording)}
    unmatched = dict(maps)
    for weights in eager.reported:
        n = next((n for n, (m, dense) in unmatched.items() if matches(dense, weights, m.captured_from)), None)
        if n is None:
            # one map may be reported twice, by a function and in the outputs
            known = any(matches(dense, weights, m.captured_from) for m, dense in maps.values())
            if not known and eager.is_comparable:
                faults.append(f"eager weights {tuple(weights.shape)} are in no map")
        else:
            del unmatched[n]
    for m, dense in unmatched.values():
        witnessed = any(
            matches(dense, weights, m.captured_from) or matches(dense.mT, weights, m.captured_from)
            for weights in eager.softmaxes
        )
        if not witnessed and not m.verified:
            faults.append(f"the map {tuple(dense.shape)} of {m.name!r} is unverified and not among the eager weights")
        elif not witnessed and eager.reported and m.captured_from != "pieces":
            faults.append(f"the map {tuple(dense.shape)} of {m.name!r} is not among the eager weights")
    return faults


def matches(dense: Tensor, weights: Tensor, captured_from: str) -> bool:  # "*b q k" both
    """Whether a map holds these weights; of an assembled map, whether its rows have the same weights in any order."""
    if dense.shape[-2:] == weights.shape[-2:] and dense.numel() == weights.numel():
        a, b = (t.float().reshape(-1, *t.shape[-2:]) for t in (dense, weights))
        # a query that may attend to nothing gets zeros of one implementation, and NaN or even weights of another
        is_empty = (a.sum(-1) == 0) & (b.isnan().any(-1) | ((b - 1 / b.shape[-1]).abs() < TOLERANCE).all(-1))
        a, b = a[~is_empty], b[~is_empty]
        if torch.allclose(a, b, rtol=0.0, atol=TOLERANCE, equal_nan=True):
            return True
        # some models report the mean over heads
        mean = dense.mean(-3, keepdim=True).expand_as(dense) if dense.ndim > 3 else dense
        if dense.shape == weights.shape and torch.allclose(mean.float(), weights.float(), rtol=0.0, atol=TOLERANCE):
            return True
    return captured_from == "pieces" and has_rows(dense, weights)


def has_rows(dense: Tensor, weights: Tensor) -> bool:
    """Whether each row of other weights, by rank, also occurs among the rows of the map."""
    keys = max(dense.shape[-1], weights.shape[-1])
    rows = []
    for t in (dense, weights):
        ranked = t.float().reshape(-1, t.shape[-1]).sort(-1, descending=True).values
        rows.append(torch.nn.functional.pad(ranked, (0, keys - ranked.shape[-1])))
    used = rows[1][rows[1].sum(-1) > TOLERANCE]  # rows that the model fills with zeros were not used
    gaps = [float((rows[0] - row).abs().amax(-1).min()) for row in used]
    return bool(gaps) and max(gaps) <= TOLERANCE


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS, page: Path = PAGE) -> int:
    command = SweepCommand("recorder", __doc__ or "", try_class, Recorded, recorder_page.page)
    return command.run(arguments, results, page)


if __name__ == "__main__":
    sys.exit(main())
