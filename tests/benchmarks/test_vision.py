"""The benchmarks of images: what they write is what the page tells."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.measured import About
from benchmarks.table import Bound
from benchmarks.timing import Effort
from benchmarks.vision import __main__ as typed, attacks, channels, clips, digits, mlp, mnist, mnist_attacks, report
from benchmarks.vision.result import Picture, Result, Row, Table
from tests.data.images.test_labelled import idx

from regard.attacks import PGD, Worst
from regard.data.embedded.clips import moving_digits, signals
from regard.tasks.classify_image.options import ClassifyImage
from regard.training.config import TrainingConfig

SMALL = TrainingConfig(steps=2, warmup=1, validate_every=1, save_every=1, log_every=1, threads=1, device="cpu")
ABOUT = About("2020-02-02", {"processor": "abacus", "load before": "0.1"}, {"torch": "2"})


def a_result(name: str = "rain") -> Result:
    return Result(
        name,
        "Rain",
        "Judged by the window.",
        [
            Row("drops", 98.214, "%", Bound("least", 98), how="wet", cpu=90.0, beside="± 0.1"),
            Row("clouds", 3, "", digits=0),
        ],
        tables=[Table("By hour", ["hour", "drops"], [["one", "2"]], "Of a day.")],
        pictures=[Picture("rain.png", "Drops by hour")],
        commands=["python -m benchmarks.vision.rain"],
        settings={"hours": 3},
        about=ABOUT,
    )


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = a_result().write(tmp_path)
    assert path == tmp_path / "rain.json"
    assert Result.read(path) == a_result()


def test_rows_say_what_was_to_be_reached() -> None:
    reached, free = a_result().rows
    assert reached.cells() == ["drops", "≥ 98", "98.21 % (± 0.1)", "reached", "1.5", "wet"]
    assert free.cells() == ["clouds", "", "3 ", "", "", ""]
    assert Row("drops", 97.9, "%", Bound("least", 98)).verdict == "falls short"


def test_no_result_yet(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"rain\.json does not exist; run python -m benchmarks\.vision\.rain first"):
        Result.read(tmp_path / "rain.json")


def test_a_page_of_what_there_is(tmp_path: Path) -> None:
    results, images = tmp_path / "results", tmp_path / "images"
    a_result("gan").write(results)
    with pytest.raises(
        ValueError, match=r"gan\.json names the picture rain\.png, which is not in .*images; run python"
    ):
        report.page(results, images)
    images.mkdir()
    (images / "rain.png").touch()
    page = report.write(results, tmp_path / "vision.md", images).read_text(encoding="utf-8")
    assert page.startswith("# Vision results\n")
    assert "- date: 2020-02-02\n- processor: abacus\n- torch 2\n" in page
    assert (
        "Not run: digits, channels, channels_mnist, mnist, mlp, clips, glimpse, caption, attacks, mnist_attacks.\n"
        in page
    )
    assert page.count("| drops | ≥ 98 | 98.21 % (± 0.1) | reached | 1.5 |") == 2  # among the bounds, and in its section
    assert page.count("| clouds |") == 1
    assert "### By hour\n\n| hour | drops |\n| --- | --- |\n| one | 2 |\n\nOf a day.\n" in page
    assert "![Drops by hour](images/rain.png)" in page
    assert "```bash\npython -m benchmarks.vision.rain\npython -m benchmarks.vision --report\n```" in page
    a_result("rain").write(results)
    with pytest.raises(
        ValueError,
        match=r"contains rain\.json, which belongs to no benchmark; known are: digits, channels, channels_mnist, mnist",
    ):
        report.page(results, images)


def test_the_page_of_the_docs_is_that_of_the_results() -> None:
    assert report.PAGE.read_text(encoding="utf-8") == report.page()


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed.main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*report.BENCHMARKS]
    for nothing in ([], ["--list", "--report"]):
        with pytest.raises(SystemExit):
            typed.main(nothing)
        assert "give --list or --report" in capsys.readouterr().err


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Forty images of each split in MNIST's files."""
    draw, folder = np.random.default_rng(0), tmp_path / "data"
    folder.mkdir()
    for split in ("train", "t10k"):
        idx(folder / f"{split}-images-idx3-ubyte", draw.integers(0, 256, (40, 8, 8), np.uint8))
        idx(folder / f"{split}-labels-idx1-ubyte", np.arange(40, dtype=np.uint8) % 2)
    return folder


def test_a_perceptron_of_a_few_images(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = mlp.TASK.with_options(hidden=(4,), batch=20)
    typed = ["--mnist", str(data), "--runs", str(tmp_path / "runs")]
    assert mlp.main(typed, task=task, training=SMALL, seeds=2, results=tmp_path) == 0
    assert "written: " in capsys.readouterr().out
    found = Result.read(tmp_path / "mlp.json")
    assert [row[0] for row in found.tables[0].rows] == list(mlp.GATES)
    assert found.rows[-1].value == pytest.approx(found.rows[1].value - found.rows[0].value)
    assert str(tmp_path) not in (tmp_path / "mlp.json").read_text()
    assert mlp.main(["--mnist", str(tmp_path / "none"), "--runs", str(tmp_path / "other")], results=tmp_path) == 1
    assert "none is no folder" in capsys.readouterr().err


def test_parts_of_channel_attention(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["none", "gap", "se:reduction=4:normalize=softmax"]
    monkeypatch.setattr(channels, "VARIANTS", {name: channels.VARIANTS[name] for name in names})
    task = channels.TASK.with_options(width=4, depths=(1,), batch=20)
    typed = ["--mnist", str(data), "--runs", str(tmp_path / "runs")]
    assert channels.main(typed, task=task, training=SMALL, seeds=2, results=tmp_path) == 0
    found = Result.read(tmp_path / "channels_mnist.json")
    assert [row[0] for row in found.tables[0].rows] == [f"`{name}`" for name in names]
    assert [row[4] for row in found.tables[0].rows] == ["0", "0", "13"]
    assert len(found.rows) == 2
    assert str(tmp_path) not in (tmp_path / "channels_mnist.json").read_text()


def test_mnist_of_a_few_images(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = {
        "mnist-rows": {"heads": 2, "width": 3, "stride": 4, "batch": 20},
        "mnist-simam": {"width": 2, "depths": (1,), "batch": 20},
    }
    cases = {
        name: replace(case, task=case.task.with_options(**tasks[name]), training=SMALL)
        for name, case in mnist.CASES.items()
    }
    typed = ["--mnist", str(data), "--runs", str(tmp_path / "runs")]
    assert mnist.main(typed, cases, tmp_path) == 0
    said = capsys.readouterr().out
    assert "mnist-rows: step 2 of 2" in said
    assert "% of 40 test images (≥ 99.3: " in said
    found = Result.read(tmp_path / "mnist.json")
    assert [row.bound for row in found.rows] == [Bound("least", 98), Bound("least", 99.3)]
    assert all(row.cpu is not None and row.cpu > 0 for row in found.rows)
    assert str(tmp_path) not in (tmp_path / "mnist.json").read_text()
    # what is trained is only judged
    assert mnist.main(typed, cases, tmp_path) == 0
    assert "step 2 of 2, loss" not in capsys.readouterr().out
    again = Result.read(tmp_path / "mnist.json")
    assert [row.value for row in again.rows] == [row.value for row in found.rows]
    assert mnist.main(["--mnist", str(tmp_path / "none"), "--runs", str(tmp_path / "other")], cases, tmp_path) == 1
    assert "none is no folder" in capsys.readouterr().err


@pytest.mark.whole
def test_digits_of_a_few_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = ClassifyImage.of(width=2, depths=(1,), batch=200)
    given: dict[str, Any] = {"task": task, "training": SMALL, "seeds": 2, "results": tmp_path}
    assert digits.main(["--runs", str(tmp_path / "runs"), "--gates", "simam"], **given) == 0
    assert "simam@1: step 2 of 2" in capsys.readouterr().out
    found = Result.read(tmp_path / "digits.json")
    assert found.rows[0].verdict == "falls short"
    assert sorted(line[0] for line in found.tables[0].rows) == ["none", "simam"]
    assert "Not trained: gap, se, eca, " in found.tables[0].said
    accuracies = found.settings["accuracies"]["none"]
    assert found.rows[0].value == pytest.approx(sum(accuracies) / 2)
    assert found.rows[0].cpu is not None
    # what is trained is only judged
    assert digits.main(["--runs", str(tmp_path / "runs"), "--gates", "simam"], **given) == 0
    assert "step 2 of 2, loss" not in capsys.readouterr().out
    assert Result.read(tmp_path / "digits.json").settings["accuracies"]["none"] == accuracies


@pytest.mark.whole
def test_clips_of_a_few_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (moving_digits, signals):
        monkeypatch.setattr(module, "_COUNTS", {"train": 24, "valid": 8, "test": 8})
    some = [
        clips.Variant("frames", "meetings", {}, 2),
        clips.Variant("samples", "signals"),
        clips.Variant("frames, causal", "directions", {"causal": True}),
    ]
    names = [each.name for each in clips.variants(3)]
    assert len(set(names)) == len(names)
    assert {"directions", "meetings", "signals", "signals-attention-sparsemax", "directions-causal"} <= set(names)
    monkeypatch.setattr(clips, "variants", lambda seeds: some)
    given: dict[str, Any] = {"steps": 2, "results": tmp_path, "images": tmp_path}
    given["sizes"] = {"width": 2, "depths": (1,), "batch": 12}
    assert clips.main(["--runs", str(tmp_path / "runs")], **given) == 0
    assert "meetings-1: accuracy" in capsys.readouterr().out
    found = Result.read(tmp_path / "clips.json")
    assert [line[:2] for line in found.tables[0].rows] == [[each.data, each.title] for each in some]
    accuracies = found.settings["accuracies"]["meetings"]
    assert found.rows[0].value == pytest.approx(sum(accuracies) / 2)
    assert [row.what for row in found.rows] == [
        "moving digits, meeting of two",
        "pattern in noise, share of the attention on its interval, softmax",
        "a clip in a batch, from the clip alone",
        "causal: the growing clip, from the whole",
    ]
    assert [row.verdict for row in found.rows[2:]] == ["reached"] * 2
    assert all((tmp_path / picture.file).exists() for picture in found.pictures)
    assert str(tmp_path) not in (tmp_path / "clips.json").read_text()
    # what is trained is only judged
    assert clips.main(["--runs", str(tmp_path / "runs"), "--only", "meetings"], **given) == 0
    assert Result.read(tmp_path / "clips.json").settings["accuracies"] == {"meetings": accuracies}
    assert clips.main(["--runs", str(tmp_path / "clips.json"), "--only", "signals"], **given) == 1
    assert "clips.json" in capsys.readouterr().err


@pytest.mark.whole
def test_attacks_of_a_few_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # torchattacks' AutoAttack takes its thousands of queries for any network
    monkeypatch.setattr(attacks, "by_autoattack", lambda net, x, y: (attacks.accuracy(net, x, y), 1.0))
    given: dict[str, Any] = {
        "task": ClassifyImage.of(width=2, depths=(1,), batch=200),
        "training": SMALL,
        "images": 30,
        "worst": Worst(0.1, (PGD(steps=2),)),
        "effort": Effort(repeat=1, least=1),
        "results": tmp_path,
    }
    assert attacks.main(["--runs", str(tmp_path / "runs")], **given) == 0
    assert "robust: step 2 of 2" in capsys.readouterr().out
    found = Result.read(tmp_path / "attacks.json")
    assert [row.bound is not None for row in found.rows] == [True] * 4
    # an attack leaves no more than no attack
    assert found.rows[1].value <= 0
    assert found.rows[3].verdict == "falls short"
    assert found.rows[3].cpu is not None
    assert [len(line) for line in found.tables[0].rows] == [8, 8]
    assert "torchattacks" in found.about.versions


def test_mnist_under_attack(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given: dict[str, Any] = {
        "task": mnist_attacks.TASK.with_options(width=2, depths=(1,), batch=20, attack_steps=1),
        "training": SMALL,
        "worst": Worst(0.3, (PGD(0.3, 2),)),
        "images": 30,
        "results": tmp_path,
    }
    typed = ["--mnist", str(data), "--runs", str(tmp_path / "runs")]
    assert mnist_attacks.main(typed, **given) == 0
    under, clean = Result.read(tmp_path / "mnist_attacks.json").rows
    assert (under.unit, clean.unit) == ("% of the first 30 test images", "% of 40 test images")
    assert under.value <= clean.value * 40 / 30
    assert under.cpu is not None
    assert str(tmp_path) not in (tmp_path / "mnist_attacks.json").read_text()
    assert mnist_attacks.main(["--mnist", str(tmp_path / "none"), "--runs", str(tmp_path / "other")], **given) == 1
    assert "none is no folder" in capsys.readouterr().err
