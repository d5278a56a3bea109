"""Bad clips on the command line: exit code 2, one sentence with the file and the way out, and nothing half done."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.for_each import for_each

from regard.cli.main import main

STEPS = ["--width", "2", "--depths", "1", "--steps", "1", "--warmup", "1", "--threads", "1", "--device", "cpu"]


def gif(path: Path, frames: int = 3, size: int = 8, shade: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    first, *others = [Image.new("L", (size, size), 40 * n + shade) for n in range(frames)]
    first.save(path, save_all=True, append_images=others)
    return path


def classes(folder: Path) -> Path:
    for name in ("a", "b"):
        for n in range(4):
            gif(folder / name / f"{n}.gif", shade=5 * n)
    return folder


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "one frame": (lambda folder: gif(folder / "a" / "x.gif", frames=1), "x.gif has one frame, and a clip needs two; "),
    "sizes": (lambda folder: gif(folder / "b" / "x.gif", size=9), "x.gif is 9 × 9, "),
    "truncated": (lambda folder: truncate(gif(folder / "a" / "x.gif")), "x.gif cannot be read as a picture"),
    "empty": (lambda folder: (folder / "a" / "x.gif").write_bytes(b""), "x.gif cannot be read as a picture"),
    "pickled": (lambda folder: np.save(folder / "a" / "x.npy", np.array([{}])), "x.npy is no whole array of numpy"),
    "no clip": (lambda folder: (folder / "c").mkdir(), "c holds no clip; put one there"),
    "few": (lambda folder: gif(folder / "c" / "x.gif"), "c of "),
}


@for_each("fault", FAULTS)
def test_training_refuses_a_bad_clip(fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil, sentence = FAULTS[fault]
    folder = classes(tmp_path / "clips")
    spoil(folder)
    assert main(["train", "classify-clip", "--train", str(folder), *STEPS, "--out", str(tmp_path / "run")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[-1].startswith("regard: ")
    assert sentence in printed.err.splitlines()[-1]
    assert not (tmp_path / "run" / "run.json").exists()


def test_prediction_refuses_a_bad_clip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, run = classes(tmp_path / "clips"), str(tmp_path / "run")
    assert main(["train", "classify-clip", "--train", str(folder), *STEPS, "--out", run]) == 0
    good = str(folder / "a" / "0.gif")
    still = str(gif(tmp_path / "still.gif", frames=1))
    picture = tmp_path / "x.png"
    capsys.readouterr()
    for words, sentence in {
        (good, still): "still.gif has one frame, and a clip needs two",
        (str(tmp_path / "none.gif"),): "there is no file",
        ("test:99",): "test:99 is behind the last of 2 clips",
        (good, "--top", "3"): "--top 3 exceeds the 2 classes of this run; try --top 2",
        (good, "--growing"): "--growing needs a model that reads no later frame; train one with --causal",
        (good, "--file", "x.txt"): "--file x.txt is for lines of text; name each clip behind the run",
        (): "name an input, or several, behind the run: each is one clip",
        (good, good, "--picture", str(picture)): "--picture draws the attention behind one output",
    }.items():
        assert main(["predict", run, *words]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert sentence in printed.err
        assert printed.err.count("\n") == 1
    assert not picture.exists()
    assert main(["record", run, still]) == 2
    assert "still.gif has one frame" in capsys.readouterr().err
