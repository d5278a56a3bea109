"""regard evaluate: how good a trained model is."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from regard.cli.options import Flag, left_open, parse
from regard.cli.progress import counted, number

if TYPE_CHECKING:
    from regard.cli.loading import Loaded
    from regard.data.text import Pairs

# what is counted, by the kind of data; the score that chose the checkpoint comes first
_SCORES = {
    "files": ("bleu", "chrf", "exact"),
    "dates": ("exact",),
    "reverse": ("exact",),
    "pronounce": ("per", "wer"),
}
_SAMPLES = 5


@dataclass(frozen=True)
class Options:
    """Score a trained model on what it has not learned from, and show some of what it says."""

    run: Annotated[Path, tyro.conf.Positional]
    """The folder of a training."""
    beam: int | None = left_open(5)
    """Of translators, hypotheses that are kept at every step; 1 takes the likeliest token each time."""
    length_penalty: float | None = left_open(1)
    """α of log p / ((5 + length) / 6)^α: the larger, the longer translations become."""
    split: Literal["valid", "test"] | None = left_open("test")
    """Which part of the run's own data; the test pairs of files that were trained without any are those of valid."""
    test: tuple[Path, ...] = ()
    """Other pairs to translate: one .tsv file, or two text files; .gz is unpacked."""
    out: Path | None = None
    """Write the translations, or the classes, into this file, a line each."""
    json: Flag = False
    """Print one JSON object instead."""
    weights: Literal["best", "last", "average"] = "best"
    """Which weights of the run: of the best validation, of the last step, or their average if one was made."""
    threads: int | None = None
    """Threads of the processor; left open, as many as the training found best."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""

    def __post_init__(self) -> None:
        for name in ("beam", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name} must be 1 or more, got {value}")
        if self.test and self.split is not None:
            raise ValueError(f"--split {self.split} and --test {self.test[0]} exclude each other; give one of them")
        if self.beam == 1 and self.length_penalty is not None:
            raise ValueError(f"--length-penalty {self.length_penalty} means nothing to --beam 1; raise --beam")


def verb(args: Sequence[str]) -> int:
    typed = parse(Options, "regard evaluate", args)
    if typed.out is not None and not typed.out.absolute().parent.is_dir():
        raise ValueError(f"--out {typed.out}: there is no folder {typed.out.parent}; make it, or name another file")
    from regard.cli.loading import recorded

    if recorded(typed.run).kind == "ClassifyImage":
        from regard.cli.pictures import evaluated

        return evaluated(typed)
    return _translated(typed)


def _translated(typed: Options) -> int:
    from regard.cli.loading import load
    from regard.tasks.interpreter import Beam, Greedy
    from regard.tasks.translation import evaluate

    loaded = load(typed.run, typed.weights, typed.device, typed.threads)
    pairs, named = _pairs(typed, loaded)
    penalty = 1.0 if typed.length_penalty is None else typed.length_penalty
    beam = 5 if typed.beam is None else typed.beam
    search = Greedy() if beam == 1 else Beam(beam, length_penalty=penalty)
    main = loaded.task.choice("metric")
    names = [main, *_SCORES[loaded.task.kind]] if main != "nll" else _SCORES[loaded.task.kind]
    print(f"regard: {counted(len(pairs), 'line')} of {named}", file=sys.stderr)
    begun = time.perf_counter()
    scores, said = evaluate(loaded.interpreter, pairs, search, tuple(dict.fromkeys(names)))
    seconds = time.perf_counter() - begun
    tokens = sum(len(ids) + 1 for ids in loaded.interpreter.vocabularies.target.encode(said))
    if typed.out is not None:
        typed.out.write_text("".join(line.replace("\n", " ") + "\n" for line in said), encoding="utf-8", newline="\n")
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
        found["signature"] = _signature(pairs)
    if typed.json:
        print(json.dumps(found, indent=2))
    else:
        _show(found, pairs, said)
    return 0


def _pairs(typed: Options, loaded: "Loaded") -> "tuple[Pairs, str]":
    """The pairs to be judged on, and what to call them."""
    from regard.data.text import read_pairs
    from regard.tasks.translation import read_one

    if typed.test:
        return read_pairs(typed.test), " ".join(map(str, typed.test))
    pairs = read_one(loaded.task, typed.split or "test")
    if typed.split == "valid":
        return pairs, f"the validation pairs of {typed.run}"
    if loaded.task.kind == "files" and not loaded.task.test:
        return pairs, f"the validation pairs of {typed.run}, which has no test pairs"
    return pairs, f"the test pairs of {typed.run}"


def _show(found: dict[str, object], pairs: "Pairs", said: Sequence[str]) -> None:
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


def _signature(pairs: "Pairs") -> str:
    """How BLEU was counted, as sacrebleu writes it, so that others can count it the same way."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU()
    metric.corpus_score(["a"], [["a"]] * max(map(len, pairs.answers)))
    return str(metric.get_signature())
