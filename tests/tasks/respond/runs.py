"""Small dialogues, options and models of the task respond."""

from collections.abc import Sequence
from pathlib import Path

import regard
from regard.cli.main import main
from regard.tasks.respond.predictor import RespondPredictor

WORDS = ["good", "bad", "film", "trip", "it", "was", "to"]
SMALL = ["--tokens", "words", "--turns", "3", "--words", "5", "--batch", "64", "--threads", "1", "--device", "cpu"]
STEPS = ["--warmup", "1", "--validate-every", "2"]
FLAT = ["--width", "8", "--heads", "2", "--layers", "2"]
HIERARCHICAL = ["--model", "hierarchical", "--width", "6", "--hidden", "8"]
MODELS = {
    "flat": FLAT,
    "flat, learned, entmax": [*FLAT, "--positions", "learned", "--attention", "entmax"],
    "flat, pointer": [*FLAT, "--output", "pointer-generator", "--turn-window", "1"],
    "flat, pointer, bidirectional": [*FLAT, "--output", "pointer-generator", "--history", "bidirectional"],
    "hierarchical": HIERARCHICAL,
    "hierarchical, lstm, heads": [*HIERARCHICAL, "--cell", "lstm", "--attention", "multi-head"],
}
INPUTS = ["good film\tit\tbad trip was to it good", "it\t\tto", "was\t\t\tgood\tbad"]


def train(file: Path, options: Sequence[str], out: Path, steps: int) -> None:
    given = ["--train", str(file), *options, *SMALL, *STEPS]
    assert main(["train", "respond", *given, "--steps", str(steps), "--out", str(out)]) == 0


def loaded(run: Path) -> RespondPredictor:
    predictor = regard.load(run, device="cpu")
    return predictor
