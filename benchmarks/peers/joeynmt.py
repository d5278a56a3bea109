"""Compares regard with JoeyNMT 2.3.0: the same sizes, sentences and batches, in turns; target tokens per CPU second.

    python -m benchmarks.peers.joeynmt --setup FOLDER
    python -m benchmarks.peers.joeynmt --peer FOLDER --source train.en.gz --target train.de.gz

Other packages are imported only where they are needed: --setup must work with Python and pip alone.
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers import environment, text
from benchmarks.peers.talk import ROOT, Answer, Setting, Worker

if TYPE_CHECKING:
    from benchmarks.table import Row

RESULT = ROOT / "benchmarks" / "results" / "joeynmt.json"

BAHDANAU = Setting("GRU 256, Bahdanau", "recurrent", "bahdanau", input_feeding=True)
SAME_ORDER = replace(BAHDANAU, name="GRU 256, Bahdanau's score in JoeyNMT's order", order="peer")
LUONG = Setting("GRU 256, Luong, no input feeding", "recurrent", "luong")
TRANSFORMER = Setting("Transformer 3+3, d 256, ff 512, 4 heads", "transformer", "heads", layers=3, rate=5e-4)

# the speed-ups that training and decoding must reach
SETTINGS = {
    "bahdanau": (BAHDANAU, 2.5, 3.0),
    "same-order": (SAME_ORDER, 2.5, 3.0),
    "luong": (LUONG, 3.5, 3.0),
    "transformer": (TRANSFORMER, 1.5, 3.0),
}

VOCABULARY, BEAM, ALPHA = 6000, 5, 1.0
PARTS = ("training", "decoding")
PEER, SAME, OWN = "joeynmt", "regard", "regard, own batches"

HOW = """\
JoeyNMT runs in a separate environment with the same torch. Every system is a separate process with one thread. The
systems alternate: a round is a number of training steps (or translated sentences) of each system, the first system
changes from round to round, and the ratio is computed within the round. The table shows the median and the quartiles of
these ratios. Time is the CPU time of the process for complete training steps: the batch, the loss, the gradients,
clipping and AdamW. Validation and checkpoints are excluded.

Both systems read the same token ids of one joint BPE with {vocabulary:,} entries; {pairs:,} pairs with {tokens:.1f}
target tokens on average. A batch has {sentences} sentences; JoeyNMT does not sort them by length. "regard" uses the
same batches; "regard, own batches" composes batches of sentences of similar length, {sentences} on average. Source
embeddings, target embeddings and the vocabulary layer share one matrix in all systems; dropout 0.1, label smoothing
{smoothing:g}, gradients clipped at 1.

Decoding: beam {beam}, length penalty ((5 + n) / 6)^{alpha:g}, at most {longest} tokens, batches of {sentences};
regard also ends a sentence whose length, relative to its source, exceeds that of all training pairs. The {held_out:,}
sentences are not part of the training data; the weights are those of each system after {steps:,} steps on the same
batches; the remarks give the mean length of the translations.
"""

ORDER = """
In Bahdanau's paper, and in regard's "Bahdanau", the decoder attends before a step and computes its output by a
maxout. JoeyNMT attends after the step and computes its output like Luong's decoder: "in JoeyNMT's order" regard
computes the same, with as many parameters (plus a bias of the vocabulary layer).
"""


@dataclass(frozen=True)
class Effort:
    """The number of rounds, of steps per round, of warm-up steps, and of sentences per round of decoding.

    Decoding starts after `trained` steps: the outputs of an untrained model have odd lengths.
    """

    rounds: int = 8
    steps: int = 30
    warm: int = 5
    trained: int = 600
    decoded: int = 1000
    chunk: int = 250

    @property
    def timed(self) -> int:
        return self.warm + self.rounds * self.steps


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.peers.joeynmt", description="Compare regard with JoeyNMT 2.3.0."
    )
    made.add_argument(
        "--setup", type=Path, metavar="FOLDER", help="create the environment of JoeyNMT in this folder, and stop"
    )
    made.add_argument("--peer", type=Path, metavar="FOLDER", help="the environment that --setup created")
    made.add_argument("--source", type=Path, help="sentences, one per line; .gz is unpacked")
    made.add_argument("--target", type=Path, help="the translations of the sentences, one per line")
    made.add_argument(
        "--only", choices=SETTINGS, action="append", help="only this model; may be repeated (default: all)"
    )
    made.add_argument("--part", choices=PARTS, help="only training or only decoding (default: both)")
    made.add_argument("--rounds", type=_positive, default=Effort.rounds, help="rounds of training (%(default)s)")
    made.add_argument("--steps", type=_positive, default=Effort.steps, help="steps per round (%(default)s)")
    made.add_argument(
        "--trained", type=_positive, default=Effort.trained, help="training steps before decoding (%(default)s)"
    )
    made.add_argument("--decoded", type=_positive, default=Effort.decoded, help="sentences to translate (%(default)s)")
    made.add_argument("--smoothing", type=float, default=0.0, help="label smoothing (%(default)s)")
    made.add_argument("--peer-only", action="store_true", help="measure only JoeyNMT, and write nothing")
    return made


def _positive(given: str) -> int:
    number = int(given)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {number}")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    parsing = parser()
    given = parsing.parse_args(arguments)
    try:
        if given.setup is not None:
            environment.setup(given.setup)
            return 0
        if given.peer is None or given.source is None or given.target is None:
            parsing.error("give --peer, --source and --target, or run --setup FOLDER first")
        if environment.found(given.peer) is None:
            parsing.error(f"{given.peer} has no joeynmt {environment.VERSION}; run --setup {given.peer} first")
        return measure(given)
    except (ValueError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def measure(given: argparse.Namespace) -> int:
    from benchmarks import machine
    from benchmarks.measured import About, today
    from benchmarks.report import Results
    from benchmarks.table import Row, line, markdown, summary

    effort = Effort(rounds=given.rounds, steps=given.steps, trained=given.trained, decoded=given.decoded)
    names = [PEER] if given.peer_only else [PEER, SAME, OWN]
    here = machine.machine()
    versions: dict[str, str] = {}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="joeynmt-text-") as folder:
        read = text.write(Path(folder), given.source, given.target, size=VOCABULARY, held_out=effort.decoded, seed=0)
        print(f"{read.pairs:,} pairs, vocabulary {read.vocabulary:,}, {read.tokens:.1f} target tokens each", flush=True)
        for name in given.only or SETTINGS:
            setting, train, decode = SETTINGS[name]
            setting = replace(setting, smoothing=given.smoothing)
            with ExitStack() as stack:
                workers = {name: stack.enter_context(_worker(name, given.peer)) for name in names}
                for name, worker in workers.items():
                    loaded = worker.ask("load", setting=setting.json(), data=folder, seed=1, own=name == OWN)
                    versions |= loaded["versions"]
                    print(f"{setting.name}: {name}, {loaded['parameters']:,} parameters", flush=True)
                for row in compare(setting, workers, effort, train, decode, given.part):
                    rows.append(row)
                    print(line(row.cells()), flush=True)
    if given.peer_only:
        return 0
    how = HOW.format(
        vocabulary=read.vocabulary,
        pairs=read.pairs,
        tokens=read.tokens,
        sentences=Setting.sentences,
        smoothing=given.smoothing,
        beam=BEAM,
        alpha=ALPHA,
        longest=text.LONGEST,
        held_out=read.held_out,
        steps=max(effort.trained, effort.timed),
    )
    if any(SAME_ORDER.name in row.case for row in [*rows, *others(rows)]):
        how += ORDER
    print(f"\n{how}\n{summary(rows)}\n\n{markdown(rows)}")
    if effort != Effort():
        print("Nothing was written: only a run with the default rounds and steps is saved.")
    else:
        about = About(today(), here, versions)
        print(f"Written to {Results(about, [*rows, *others(rows)], how).write(RESULT)}.")
    return 0


def others(rows: "Sequence[Row]") -> "Sequence[Row]":
    """The rows of the result file whose models were not measured this time; their note has the date."""
    from benchmarks.report import read

    if not RESULT.exists():
        return []
    results, now = read(RESULT), {row.case for row in rows}
    kept = [row for row in results.rows if row.case not in now]
    return [
        row if "measured on" in row.note else replace(row, note=f"{row.note}; measured on {results.about.date}")
        for row in kept
    ]


def _worker(name: str, peer: Path) -> Worker:
    theirs = name == PEER
    python = environment.python_of(peer) if theirs else Path(sys.executable)
    module = "joeynmt_worker" if theirs else "regard_worker"
    log = Path(tempfile.gettempdir()) / f"benchmarks-{module}.log"
    return Worker([str(python), "-m", f"benchmarks.peers.{module}"], log)


def compare(
    setting: Setting, workers: dict[str, Worker], effort: Effort, train: float, decode: float, part: str | None = None
) -> "Iterator[Row]":
    """The rows of one model: training on the same batches and on its own, then decoding per token and per sentence."""
    for worker in workers.values():
        worker.ask("train", steps=effort.warm)
    turns = [{"steps": effort.steps}] * effort.rounds
    trained = rounds("train", workers, turns)
    if part != "decoding":
        yield from versus(f"training, {setting.name}", trained, "tokens", {SAME: None, OWN: train}, "target tokens")
    if part == "training":
        return
    some = {name: worker for name, worker in workers.items() if name != OWN}
    if effort.trained > effort.timed:
        for worker in some.values():
            worker.ask("train", steps=effort.trained - effort.timed)
    cuts = [*range(0, effort.decoded, effort.chunk), effort.decoded]
    how = {"beam": BEAM, "alpha": ALPHA, "longest": text.LONGEST}
    decoded = rounds("decode", some, [{"start": a, "stop": b, **how} for a, b in itertools.pairwise(cuts)])
    yield from versus(f"decoding, {setting.name}", decoded, "tokens", {SAME: decode}, "tokens")
    yield from versus(f"decoding, {setting.name}", decoded, "sentences", {SAME: None}, "sentences")


def rounds(do: str, workers: dict[str, Worker], turns: Sequence[Mapping[str, object]]) -> dict[str, list[Answer]]:
    """Asks every worker once per round; the first one changes from round to round."""
    answers: dict[str, list[Answer]] = {name: [] for name in workers}
    names = list(workers)
    for number, asked in enumerate(turns):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            answers[name].append(workers[name].ask(do, **asked))
    return answers


def versus(
    case: str, answers: dict[str, list[Answer]], per: str, bounds: dict[str, float | None], what: str
) -> "Iterator[Row]":
    """One row per worker of regard against the peer; the peer alone if there is no other."""
    from benchmarks.table import Row, gain
    from benchmarks.timing import Timed

    timed = Timed({name: [one["cpu_seconds"] / one[per] for one in got] for name, got in answers.items()}, threads=1)
    told = {name: f"{1 / timed.of(name).median:,.0f} {what}/s{_beside(got)}" for name, got in answers.items()}
    if len(answers) == 1:
        yield Row(case, PEER, clock=timed.clock, note=told[PEER])
    for name, bound in bounds.items():
        if name in answers:
            yield gain(case, timed, name, PEER, bound, f"{told[name]} to {told[PEER]}")


def _beside(answers: list[Answer]) -> str:
    """Facts for the note: the share of padding and the last loss, or the length of the outputs."""
    tokens = sum(one["tokens"] for one in answers)
    if "places" in answers[0]:
        return f" ({1 - tokens / sum(one['places'] for one in answers):.0%} padding, loss {answers[-1]['loss']:.2f})"
    return f" ({tokens / sum(one['sentences'] for one in answers):.1f} tokens per sentence)"


if __name__ == "__main__":
    sys.exit(main())
