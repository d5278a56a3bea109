"""Spelled words, transcribed: python -m benchmarks.speech --runs FOLDER [name …] writes results/speech/.

Trains or resumes one run per name, and evaluates the weights of the best validation on test utterances, whose words,
pitches and noise are not in the training data, as long as in training and twice as long. `--report` evaluates the
existing runs, at whatever step. The settings in the result are those that each run recorded.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.spent import Spent
from benchmarks.table import Bound
from benchmarks.training import Unfinished, train
from benchmarks.vision.result import ROOT, Result, Row, Table
from regard.data.audio.log_mel import MelBands, log_mel
from regard.data.embedded.spelling import RATE, Split, utterance
from regard.decoding.search import Beam, Greedy
from regard.inference.predictor import labelled_recording
from regard.tasks.loading import load_run
from regard.tasks.registry import read_config
from regard.tasks.transcribe.data import SpelledSpeech
from regard.tasks.transcribe.options import Transcribe
from regard.tasks.transcribe.predictor import SoundInput, Transcriber
from regard.tasks.transcribe.task import error_rates, listening_delays
from regard.training import checkpoint
from regard.training.config import TrainingConfig
from regard.training.run_folder import BEST

RESULTS = ROOT / "benchmarks" / "results" / "speech"
MAIN, ONLINE = "location-sensitive", "online"
# options and steps of each run; those beside the main one have smaller budgets
CASES: dict[str, tuple[dict[str, Any], int]] = {
    MAIN: ({}, 2400),
    ONLINE: ({"online": True}, 1600),
    "additive": ({"attention": "additive"}, 800),
    "monotonic": ({"attention": "monotonic"}, 1600),
    "mocha": ({"attention": "mocha"}, 800),
    "transformer": ({"model": "transformer"}, 800),
}
# the test utterance of the picture
_DRAWN = 3
# utterances that are twice as long may cost this many points of character error
LONGER = {MAIN: 3.0, "monotonic": 3.0, ONLINE: 3.0}


@dataclass(frozen=True)
class Judged:
    """The error rates of the best weights of a run: as long as in training, twice as long, and by a beam."""

    name: str
    seed: int
    step: int
    cpu: float | None
    errors: dict[str, float]
    long: dict[str, float]
    beam: dict[str, float]
    delays: tuple[float, float] | None = None  # mean and 95th percentile, in milliseconds


def main(arguments: Sequence[str] | None = None, folder: Path = RESULTS) -> int:
    made = argparse.ArgumentParser(prog="python -m benchmarks.speech")
    made.add_argument("names", nargs="*", default=[], help=f"of {', '.join(CASES)}; if left out, all")
    made.add_argument("--runs", type=Path, metavar="FOLDER", required=True, help="folder for the runs")
    made.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the trainings")
    made.add_argument("--steps", type=int, help="steps per training")
    made.add_argument("--count", type=int, default=500, help="test utterances of each length")
    made.add_argument("--report", action="store_true", help="evaluate the existing runs, without training")
    made.add_argument("--pictures", type=Path, default=ROOT / "docs" / "images")
    given = made.parse_args(arguments)
    if unknown := [name for name in given.names if name not in CASES]:
        made.error(f"unknown {unknown[0]!r}; known are: {', '.join(CASES)}")
    runs = [(name, seed) for name in CASES if name in (given.names or CASES) for seed in given.seeds]
    for name, seed in [] if given.report else runs:
        options, steps = CASES[name]
        try:
            config = TrainingConfig(**{**Transcribe.training, "steps": given.steps or steps, "threads": 1})
            train(name, Transcribe.of(seed=seed, **options), config, run_of(given.runs, name, seed), print)
        except Unfinished as error:
            print(error, file=sys.stderr)
            return 1
    there = [(name, seed) for name, seed in runs if (run_of(given.runs, name, seed) / BEST).exists()]
    found = [judged(name, seed, run_of(given.runs, name, seed), given.count) for name, seed in there]
    if (MAIN, 0) in there:
        draw(run_of(given.runs, MAIN, 0), given.pictures / "transcribe.png")
    result = Result("spelling", "Spelled words", said(given.count), rows(found, given.count), [table(found)])
    for row in result.rows:
        print(" | ".join(row.cells()), flush=True)
    for line in result.tables[0].rows:
        print(" | ".join(line), flush=True)
    print(f"Written to {result.write(folder)}.")
    return 0


def draw(run: Path, path: Path) -> None:
    """The attention of a run to a test utterance, over its spectrogram."""
    predictor = load_run(run, device="cpu").predictor
    given = SoundInput(SpelledSpeech("test", 0, _DRAWN + 1).sound(_DRAWN, RATE))
    output, recording = labelled_recording(predictor, given)
    predictor.draw(recording, given, output, path)


def run_of(folder: Path, name: str, seed: int) -> Path:
    return folder / (name if seed == 0 else f"{name}-{seed}")


def judged(name: str, seed: int, run: Path, count: int) -> Judged:
    predictor, config = load_run(run, device="cpu").predictor, read_config(run)
    assert isinstance(predictor, Transcriber)
    assert isinstance(config, Transcribe)
    spent = Spent.of(run)
    scores = [_errors(predictor, "test", count, times, search) for times, search in _SEARCHES]
    delays = None
    if config.model.is_online:
        measured = listening_delays(predictor, SpelledSpeech("test", 0, min(count, 200)), config.rate)
        delays = (float(measured.mean()), float(np.percentile(measured, 95))) if measured.size else None
    step = int(checkpoint.read(run / BEST).facts["step"])
    return Judged(name, seed, step, None if spent is None else spent.seconds, *scores, delays)


_SEARCHES = ((1, Greedy()), (2, Greedy()), (1, Beam(5)))


def _errors(predictor: Transcriber, split: Split, count: int, times: int, search: Any) -> dict[str, float]:
    rate = predictor.features.bands.rate
    speech = SpelledSpeech(split, 0, count, times)
    return error_rates(predictor, [speech.sound(n, rate) for n in range(count)], speech.texts, search)[0]


def rows(found: Sequence[Judged], count: int) -> list[Row]:
    """A row per bound, and the error of every run."""
    unit = f"% of characters, {count} utterances"
    made = []
    for each in found:
        bound = Bound("most", 3.0) if each.name == MAIN else None
        how = f"seed {each.seed}, weights of step {each.step}, greedy search"
        made.append(Row(f"{each.name}, character error", each.errors["cer"], unit, bound, how, each.cpu))
    for each in found:
        lost = each.long["cer"] - each.errors["cer"]
        longer = Bound("most", LONGER[each.name]) if each.name in LONGER else None
        made.append(Row(f"{each.name}, twice as long: points lost", lost, "points", longer, f"seed {each.seed}"))
    first = {each.name: each for each in reversed(found)}
    if ONLINE in first and MAIN in first:
        online = first[ONLINE]
        lost = online.errors["cer"] - first[MAIN].errors["cer"]
        made.append(Row("online: points behind location-sensitive, offline", lost, "points", Bound("most", 2.0)))
        if online.delays is not None:
            high = f"95 % within {online.delays[1]:.0f} ms"
            made.append(Row("online: delay of a letter after its end", online.delays[0], "ms", beside=high, digits=0))
    made.append(
        Row("log-mel: greatest difference from transformers", _log_mel_error(), "", Bound("most", 1e-4), digits=6)
    )
    return made


def table(found: Sequence[Judged]) -> Table:
    headings = ("run", "seed", "cer", "wer", "cer, beam 5", "cer, twice as long", "wer, twice as long", "CPU minutes")
    lines = [
        [
            each.name,
            str(each.seed),
            *(f"{value:.2f}" for value in (each.errors["cer"], each.errors["wer"], each.beam["cer"])),
            *(f"{value:.2f}" for value in (each.long["cer"], each.long["wer"])),
            "" if each.cpu is None else f"{each.cpu / 60:.1f}",
        ]
        for each in found
    ]
    return Table("All mechanisms", headings, lines)


def _log_mel_error() -> float:
    """The greatest difference of features of an utterance from those of transformers."""
    from transformers.audio_utils import mel_filter_bank, spectrogram, window_function

    bands, samples = MelBands(), utterance("test", (0, 0)).samples
    filters = mel_filter_bank(129, bands.mels, 0.0, bands.rate / 2, bands.rate, norm=None, mel_scale="htk")
    window = window_function(bands.window, "hann")
    options: dict[str, Any] = {"power": 2.0, "center": False, "mel_floor": 1e-10, "log_mel": "log"}
    theirs = spectrogram(samples, window, bands.window, bands.hop, fft_length=256, mel_filters=filters, **options)
    return float(np.abs(log_mel(torch.from_numpy(samples), bands).numpy() - theirs.T).max())


def said(count: int) -> str:
    return (
        f"{count} test utterances of each length; their words, pitches and noise are in no training utterance. The "
        "weights are those of the best of the validations, on 200 utterances that are in neither."
    )


if __name__ == "__main__":
    sys.exit(main())
