"""Runs of two steps, of every served task about texts but translation."""

from pathlib import Path

import torch
from tests.serve.conftest import LINES

from regard.cli.main import main
from regard.tasks.loading import LoadedRun, load_run

TEXT_RUNS = {
    "classify-text": "--train {}/texts.tsv --width 5 --hidden 6 --hops 2 --feed 7 --batch 64",
    "tag": "--train {}/columns.conll --embedding 5 --characters 4 --hidden 6 --batch 64",
    "masked-lm": "--train {}/lines.txt --tokens characters --width 8 --heads 2 --layers 1 --segment 220 --batch 2 "
    "--valid-tokens 230 --valid-share 0.3",
    "language-model": "--train {}/lines.txt --width 8 --heads 2 --layers 1 --segment 24 --valid-tokens 30 --batch 3",
}


def text_for(task: str, text: str) -> str:
    """A text that the task reads."""
    return f"{text[:1]}[MASK]{text[1:]}" if task == "masked-lm" else text


def text_run(task: str, folder: Path) -> LoadedRun:
    """Trains the task in this folder."""
    words = [line.replace(" ", " x ") for line in LINES]
    (folder / "texts.tsv").write_text("".join(f"{'good' if n % 3 else 'bad'}\t{w}\n" for n, w in enumerate(words)))
    (folder / "lines.txt").write_text("\n".join(words) + "\n")
    sentences = ("\n".join(f"{w} {'B-PLACE' if w in 'bd' else 'O'}" for w in line.split()) for line in words)
    (folder / "columns.conll").write_text("\n\n".join(sentences) + "\n")
    options = [*TEXT_RUNS[task].format(folder).split(), "--threads", "1", "--steps", "2"]
    threads = torch.get_num_threads()
    try:
        assert main(["train", task, *options, "--out", str(folder / task)]) == 0
    finally:
        torch.set_num_threads(threads)
    return load_run(folder / task, "best", "cpu")
