"""A text of two lines, and tiny runs of the tasks that learn running text."""

from pathlib import Path

from regard.cli.main import main

TEXT = "the cat sat on the mat.\nthe dog sat on the log.\n" * 12
SMALL = ["--width", "8", "--heads", "2", "--layers", "1", "--segment", "16", "--batch", "3", "--valid-tokens", "40"]
STEPS = ["--threads", "1", "--device", "cpu", "--steps", "2", "--validate-every", "2", "--warmup", "1"]


def train_on_text(task: str, folder: Path, *options: str) -> Path:
    """A run in a new folder below `folder`, beside its text."""
    (folder / "text.txt").write_text(TEXT)
    args = ["--train", str(folder / "text.txt"), *SMALL, *STEPS, *options, "--out", str(folder / "run")]
    assert main(["train", task, *args]) == 0
    return folder / "run"
