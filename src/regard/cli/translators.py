"""What a trained translator comes to: its scores, and some of what it says."""

import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.cli.answers import write
from regard.cli.loading import load
from regard.cli.progress import counted, counting, number
from regard.data.text.pairs import Pairs, read_pairs
from regard.decoding.search import Beam, Greedy
from regard.metrics.text import signature
from regard.tasks.translate.fingerprint import CorpusFingerprint
from regard.tasks.translate.options import Translate
from regard.tasks.translate.task import evaluate, read_one

if TYPE_CHECKING:
    from regard.cli.verbs import predict
    from regard.cli.verbs.evaluate import Options

# what is counted, by the kind of data; the score that chose the checkpoint comes first
_SCORES = {
    "files": ("bleu", "chrf", "exact"),
    "dates": ("exact",),
    "reverse": ("exact",),
    "pronounce": ("per", "wer"),
}
_SAMPLES = 5


def predicted(typed: "predict.Options") -> int:
    raise ValueError(f"{typed.run} is a translator; ask it by: regard translate {typed.run} TEXT")


def evaluated(typed: "Options") -> int:
    """regard evaluate, of a run that translates."""
    loaded = load(typed.run, typed.weights, typed.device, typed.threads)
    pairs, named = _pairs(typed, loaded.task)
    penalty = 1.0 if typed.length_penalty is None else typed.length_penalty
    beam = 5 if typed.beam is None else typed.beam
    search = Greedy() if beam == 1 else Beam(beam, length_penalty=penalty)
    main = loaded.task.choice("metric")
    names = [main, *_SCORES[loaded.task.kind]] if main != "nll" else _SCORES[loaded.task.kind]
    print(f"regard: {counted(len(pairs), 'line')} of {named}", file=sys.stderr)
    cut = CorpusFingerprint.read(typed.run).bleu
    begun = time.perf_counter()
    with counting(len(pairs), "lines", sys.stderr) as done:
        scores, said = evaluate(loaded.by, pairs, search, tuple(dict.fromkeys(names)), done, cut)
    seconds = time.perf_counter() - begun
    tokens = sum(len(ids) + 1 for ids in loaded.by.vocabularies.target.encode(said))
    write(typed, said)
    found = {
        "run": str(typed.run),
        "weights": typed.weights,
        "step": loaded.step,
        "pairs": named,
        "lines": len(pairs),
        "beam": beam,
        "scores": scores,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
    }
    if "bleu" in scores:
        found["signature"] = signature(pairs.answers, cut)
    if typed.json:
        print(json.dumps(found, indent=2))
    else:
        _show(found, pairs, said)
    return 0


def _pairs(typed: "Options", task: Translate) -> tuple[Pairs, str]:
    """The pairs to be judged on, and what to call them."""
    if typed.test:
        return read_pairs(typed.test), " ".join(map(str, typed.test))
    pairs = read_one(task, typed.split or "test")
    if task.kind == "files" and not task.valid and (typed.split == "valid" or not task.test):
        CorpusFingerprint.held(pairs, typed.run)
    if typed.split == "valid":
        return pairs, f"the validation pairs of {typed.run}"
    if task.kind == "files" and not task.test:
        return pairs, f"the validation pairs of {typed.run}, which has no test pairs"
    return pairs, f"the test pairs of {typed.run}"


def _show(found: dict[str, object], pairs: Pairs, said: Sequence[str]) -> None:
    scores = found["scores"]
    assert isinstance(scores, dict)
    for name, value in scores.items():
        print(f"{name:7}{number(value)}" + (f"   {found['signature']}" if name == "bleu" else ""))
    search = "the likeliest token each time" if found["beam"] == 1 else f"beam {found['beam']}"
    print(
        f"{counted(len(pairs), 'line')} in {found['seconds']:.1f} s, {found['tokens_per_second']:,.0f} tokens/s; "
        f"{search}, {found['weights']} weights, of step {found['step']:,}\n"
    )
    for n in range(0, len(said), max(1, len(said) // _SAMPLES))[:_SAMPLES]:
        right = "" if said[n] in pairs.answers[n] else f"   right: {' or '.join(dict.fromkeys(pairs.answers[n]))}"
        print(f"  {pairs.source[n]} → {said[n]}{right}")
