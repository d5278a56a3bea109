"""record on every class of transformers: `python -m benchmarks.zoo.recorder_sweep [names ...] [--again] [--docs]`.

Builds a tiny random model of every class in transformers' model mappings, records one call of it, and compares the maps
with the weights that its eager implementation forms. One line of JSON per class is written to results/zoo as soon as it
is known, so that a sweep that was stopped continues; a class has 30 seconds and 8 GB.
"""

import argparse
import json
import resource
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import regard
from benchmarks.measured import About
from benchmarks.zoo import eager_weights, recorder_page
from benchmarks.zoo.recorder_page import Outcome
from benchmarks.zoo.tiny_models import CannotBuild, TinyModel, build, class_names
from regard.recording.recording import Recording

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "zoo"
PAGE = ROOT / "docs" / "recorded-models.md"
SECONDS, MEMORY = 30, 8 << 30
SEED = 3
# the greatest difference of two weights that are the same
TOLERANCE = 1e-3


class OutOfTime(BaseException):
    """A class took more than its seconds."""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise OutOfTime

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def try_class(name: str, model_type: str) -> Outcome:
    """The outcome of a class within its limits."""
    try:
        with limited(SECONDS):
            return compare(name, model_type, build(name))
    except CannotBuild as error:
        return Outcome(name, model_type, "not built", str(error))
    except OutOfTime:
        return Outcome(name, model_type, "not built", f"time: more than {SECONDS} s")
    except MemoryError:
        return Outcome(name, model_type, "not built", f"memory: more than {MEMORY >> 30} GB")


def compare(name: str, model_type: str, tiny: TinyModel) -> Outcome:
    """Records a call and compares its maps with the eager weights."""
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        _seed()
        with regard.record(tiny.model) as recording:
            tiny.model(**tiny.inputs)
    said = [str(warning.message) for warning in caught if str(warning.message).startswith("record ")]
    eager = eager_weights.collect(tiny, _seed)
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
    return Outcome(name, model_type, verdict, " ".join(said)[:400] or "; ".join(faults)[:400], **counts)


def _seed() -> None:
    torch.manual_seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002 - models draw from it


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


# Results


@dataclass(frozen=True)
class Sweep:
    """The outcomes of all classes, with date and versions."""

    about: About
    outcomes: list[Outcome]

    def write(self, path: Path) -> Path:
        """One line per class."""
        lines = ",\n".join(json.dumps(asdict(outcome), ensure_ascii=False) for outcome in self.outcomes)
        about = json.dumps(asdict(self.about), ensure_ascii=False)
        path.write_text(f'{{"about": {about},\n"outcomes": [\n{lines}\n]}}\n', encoding="utf-8")
        return path

    @staticmethod
    def read(path: Path) -> "Sweep":
        content = json.loads(path.read_text(encoding="utf-8"))
        return Sweep(About(**content["about"]), [Outcome(**fields) for fields in content["outcomes"]])


def read_lines(path: Path) -> dict[str, Outcome]:
    """The outcomes of a sweep that is not finished."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {fields["name"]: Outcome(**fields) for fields in map(json.loads, lines)}


def sweep(known: dict[str, str], path: Path) -> list[Outcome]:
    """The outcomes of all classes; those that an earlier sweep wrote to `path` are read from it."""
    done = read_lines(path)
    for n, (name, model_type) in enumerate(known.items(), 1):
        if name not in done:
            done[name] = outcome = try_class(name, model_type)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(outcome), ensure_ascii=False) + "\n")
            print(f"[{n}/{len(known)}] {name}: {outcome.verdict} {outcome.reason[:200]}", flush=True)
    return [done[name] for name in known]


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS, page: Path = PAGE) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo.recorder_sweep", description=__doc__)
    parser.add_argument("names", nargs="*", help="classes to try and print; if left out, all, and a result is written")
    parser.add_argument("--again", action="store_true", help="forget the outcomes of a sweep that was stopped")
    parser.add_argument("--docs", action="store_true", help="write docs/recorded-models.md from the result, and stop")
    given = parser.parse_args(arguments)
    if given.docs:
        page.write_text(recorder_page.page(Sweep.read(results / "recorder.json")), encoding="utf-8")
        return 0
    prepare()
    known = class_names()
    if given.names:
        outcomes = [try_class(name, known.get(name, "unknown")) for name in given.names]
        for outcome in outcomes:
            print(f"{outcome.name}: {outcome.verdict} {outcome.reason[:200]}")
    else:
        results.mkdir(parents=True, exist_ok=True)
        lines = results / "recorder.jsonl"
        if given.again:
            lines.unlink(missing_ok=True)
        outcomes = sweep(known, lines)
        Sweep(About.now(("transformers", "numpy")), outcomes).write(results / "recorder.json")
        lines.unlink()
    print(", ".join(f"{count} {verdict}" for verdict, count in Counter(o.verdict for o in outcomes).items()))
    return int(any(outcome.verdict == "WRONG" for outcome in outcomes))


def prepare() -> None:
    """One thread, a limit of memory, and no notes of transformers."""
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    sys.exit(main())
