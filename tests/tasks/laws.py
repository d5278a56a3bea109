"""Laws of predictors, of runs and of released models."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.cli.main import main
from regard.training.checkpoint import read


def check_predictions(
    folder: Path, given: Sequence[str], more: Sequence[str], options: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """`regard predict` prints a line per input, and each output is the same as if it were alone."""
    capsys.readouterr()
    assert main(["predict", str(folder), *given, *more]) == 0
    # bytes that are drawn at random may be signs at which splitlines splits
    assert capsys.readouterr().out.count("\n") == len(given)
    assert main(["predict", str(folder), *given, *more, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.rstrip("\n").split("\n")]
    predictor = regard.load(folder, device="cpu")
    assert [line[predictor.input_key] for line in lines] == list(given)
    assert not predictor.model.training
    inputs = [predictor.read(argument) for argument in given]
    together = predictor.predict(inputs, options)
    alone = [predictor.predict([each], options, first=n)[0] for n, each in enumerate(inputs)]
    assert [predictor.text(output) for output in together] == [predictor.text(output) for output in alone]


def check_loss(folder: Path, given: Sequence[str], targets: Sequence[Any]) -> None:
    """The losses of inputs are those of each alone, and gradients reach the model."""
    predictor = regard.load(folder, device="cpu")
    inputs = [predictor.read(argument) for argument in given]
    loss = predictor.loss(inputs, targets)
    assert loss.shape == (2,)
    assert loss.isfinite().all()
    alone = torch.stack([predictor.loss(inputs[n : n + 1], targets[n : n + 1])[0] for n in range(2)])
    torch.testing.assert_close(loss, alone, rtol=1e-4, atol=1e-5)
    loss.sum().backward()
    assert any(p.grad is not None and p.grad.any() for p in predictor.model.parameters())
    if predictor.embedding is not None:
        assert predictor.embeddings(inputs).ndim == 3


def check_picture(folder: Path, given: str, picture: Path, *more: str) -> None:
    assert main(["predict", str(folder), given, *more, "--picture", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def check_resume(train: Callable[[Path, int], object], folder: Path, first: int = 1, steps: int = 2) -> Path:
    """A run that stops after the `first` steps and is resumed has the weights of an uninterrupted one, which is
    returned."""
    once, twice = folder / "once", folder / "twice"
    train(once, steps)
    train(twice, first)
    assert main(["train", "--resume", str(twice), "--steps", str(steps)]) == 0
    expected, tensors = (read(run / "last.safetensors").tensors for run in (once, twice))
    assert expected.keys() == tensors.keys()
    assert all(torch.equal(tensors[key], tensor) for key, tensor in expected.items())
    return once
