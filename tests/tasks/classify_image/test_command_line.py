"""classify-image on the command line: train, evaluate, predict and compare."""

import json
from pathlib import Path

import pytest
from PIL import Image
from tests.cli.conftest import Regard
from tests.for_each import for_each

from regard.attacks import FGSM
from regard.attacks.attack import attack as attack_result
from regard.cli.main import main
from regard.common.json_files import with_checksum
from regard.common.wording import number
from regard.experiments.comparison import student
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.loading import load
from regard.tasks.shared.image_data import bounded_examples, read_split

TINY = ["--width", "4", "--depths", "1", "--threads", "1", "--warmup", "1", "--steps", "3", "--batch", "200"]


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("classifier") / "run"
    assert main(["train", "classify-image", *TINY, "--gate", "se", "--out", str(run)]) == 0
    return run


def test_training_says_what_it_counts(regard: Regard, tmp_path: Path) -> None:
    ran = regard("train", "classify-image", *TINY, "--log-every", 1, "--out", tmp_path / "run")
    assert ran.code == 0
    assert "No --train or --data given; using the built-in data set 'digits'." in ran.out
    assert "images/s" in ran.out
    assert f"Next: regard predict {tmp_path / 'run'} PICTURE, or regard evaluate {tmp_path / 'run'}" in ran.out
    assert regard("train", "--resume", tmp_path / "run", "--steps", 4).code == 0


def test_predict(regard: Regard, classifier: Path, tmp_path: Path) -> None:
    for name, mode in (("a.png", "L"), ("b.png", "RGB")):
        Image.new(mode, (20, 13), 90 if mode == "L" else (1, 2, 3)).save(tmp_path / name)
    # words may stand on both sides of an option
    ran = regard("predict", classifier, tmp_path / "a.png", "--top", 2, tmp_path / "b.png")
    assert ran.code == 0
    rows = [line.split("\t") for line in ran.out.splitlines()]
    assert [row[0] for row in rows] == [str(tmp_path / "a.png"), str(tmp_path / "b.png")]
    assert all(len(row) == 3 and row[1].endswith(" %") for row in rows)
    ran = regard("predict", classifier, tmp_path / "a.png", "--top", 99)
    assert ran == (2, "", "regard: --top 99 exceeds the 10 classes of this run; try --top 10\n")
    asked = tmp_path / "a.png"
    said = f"regard: --picture {asked} is an input and would be written over; name another file\n"
    assert regard("predict", classifier, asked, "--picture", asked) == (2, "", said)


def test_compare(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    attack = ["--attack", "fgsm", "--attack-eps", "0.2"]
    assert main(["compare", "classify-image", "--gate", "none,simam", *TINY, *attack, "--out", str(out)]) == 0
    assert "a network on digits, 3 steps each; the best validation, by nll." in capfd.readouterr().out
    told = json.loads((out / "results.json").read_text())
    assert told["none"]["parameters"] == told["simam"]["parameters"]
    assert set(told["none"]["scores"]) == {"accuracy", "nll", "fgsm 0.2, test"}
    x, y = bounded_examples(test := read_split(ClassifyImage.of(), "test"), test.classes)
    wanted = attack_result(load(out / "simam"), x, y, FGSM(0.2)).accuracy
    assert told["simam"]["scores"]["fgsm 0.2, test"] == pytest.approx(wanted)


def test_several_seeds_make_an_interval(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    args = ["compare", "classify-image", "--gate", "none,eca", *TINY, "--seeds", "2", "--seed", "5", "--out", str(out)]
    assert main(args) == 0
    table = capfd.readouterr().out
    told = json.loads((out / "results.json").read_text())
    assert set(told) == {"none@5", "none@6", "eca@5", "eca@6"}
    a, b = (told[f"eca@{seed}"]["scores"]["nll"] for seed in (5, 6))
    assert a != b
    row = next(line for line in table.splitlines() if line.startswith("| eca (2 seeds)"))
    # of two values the standard error is half their distance
    assert f"{number((a + b) / 2)} ± {number(student(2) * abs(a - b) / 2)}" in row


@for_each(
    ("args", "said"),
    [
        (
            ["compare", "classify-image", "--gate", "se", "--seeds", "0"],
            "--seeds must be from 1 to 1000, got 0; try --seeds 5",
        ),
        (
            ["compare", "classify-image", "--gate", "se", "--attack-eps", "0.2"],
            "--attack-eps 0.2 belongs to --attack; give --attack worst as well",
        ),
        (
            ["compare", "classify-image", "--gate", "se", "--attack", "pgd", "--attack-eps", "8"],
            "--attack-eps must be more than 0 and at most 1, as pixels are from 0 to 1, got 8; 8 of 255 grey levels "
            "are --attack-eps 0.0314",
        ),
        (
            ["compare", "translate", "--attention", "dot", "--attack", "pgd"],
            "--attack pgd changes the pixels of images, and translate reads none; leave it out, or compare "
            "classify-image or glimpse",
        ),
        (
            ["compare", "classify-text", "--attention", "paper", "--attack", "pgd"],
            "--attack pgd changes the pixels of images, and classify-text reads none; use --attack hotflip or "
            "characters, or compare classify-image or glimpse",
        ),
        (
            ["compare", "classify-image", "--gate", "se", "--attack", "hotflip"],
            "--attack hotflip changes the words of texts that have one class, and classify-image has none; leave it "
            "out, or compare classify-text or match",
        ),
        (
            ["compare", "classify-text", "--attention", "paper", "--attack", "hotflip", "--attack-eps", "0.1"],
            "--attack-eps 0.1 is the change of a pixel, and --attack hotflip changes texts; leave it out",
        ),
        (
            ["evaluate", "RUN", "--beam", "3"],
            "--beam is an option of .*, not of this task; regard evaluate",
        ),
        (
            ["translate", "RUN", "hello"],
            "is a run of classify-image, and regard translate is for runs of translate; use ",
        ),
        (["predict", "RUN", "nix.png"], "there is no file nix.png; name a picture that is there"),
        (["predict", "RUN", "."], "is a folder; name the pictures in it"),
        (["predict", "RUN"], "name an input, or several, behind the run: each is one image"),
        (
            ["predict", "RUN", "a.png", "--picture", "p.xyz"],
            "unknown suffix of --picture '.xyz'; known are: .png, .svg",
        ),
        (["train", "classify-image", "--shift", "8"], "--shift 8 moves images of 8 × 8 pixels out of sight; try --shi"),
        (["predict", "RUN", "a.png", "--picture", "nix/p.png"], "--picture nix/p.png: there is no folder nix; make it"),
        (["train", "classify-image", "--size", "9"], "--size 9 belongs to .*; give --train FOLDER as well"),
        (["compare", "classify-image", "--gate", "se,se"], "--gate names 'se' twice; name each once"),
        (["compare", "classify-image", "--gate", "se,sse"], "sse cannot be compared: unknown --gate 'sse'"),
    ],
)
def test_wrong_input_is_one_sentence(regard: Regard, classifier: Path, args: list[str], said: str) -> None:
    import re

    ran = regard(*(str(classifier) if word == "RUN" else word for word in args))
    assert ran.code == 2
    assert re.search(said, ran.err), ran.err
    assert "Traceback" not in ran.err


def test_a_run_of_a_later_version(regard: Regard, classifier: Path, tmp_path: Path) -> None:
    told = json.loads((classifier / "run.json").read_text())
    (tmp_path / "run.json").write_bytes(with_checksum({**told, "task": "paint"}))
    ran = regard("evaluate", tmp_path)
    assert ran.code == 2
    assert "is a run of 'paint', which this version does not know; update regard" in ran.err
