"""regard attack: the accuracy of a run against the radius of an attack."""

import json
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from PIL import Image
from tests.cli.conftest import Regard

from regard.attacks import ATTACKS
from regard.cli.main import main
from regard.cli.verbs.attack import AttackOptions

TINY = ["--threads", "1", "--warmup", "1", "--steps", "12", "--batch", "200", "--lr", "0.02"]


@pytest.fixture(scope="session")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier whose gates look at places."""
    run = tmp_path_factory.mktemp("gated") / "run"
    model = ["--width", "4", "--depths", "1", "1", "--gate", "spatial"]
    assert main(["train", "classify-image", *TINY, *model, "--out", str(run)]) == 0
    return run


def test_the_names_are_those_of_the_catalogue() -> None:
    assert get_args(get_type_hints(AttackOptions)["attack"]) == tuple(ATTACKS)


def test_a_curve_with_pictures(regard: Regard, gated: Path, tmp_path: Path) -> None:
    curve, picture = tmp_path / "curve.png", tmp_path / "picture.png"
    files = ["--curve", curve, "--picture", picture]
    ran = regard("attack", gated, "--eps", 0.4, "--points", 3, "--count", 50, *files)
    assert ran.code == 0, ran.err
    head, *rows, about = ran.out.splitlines()
    assert head == "eps       accuracy"
    values = [[float(word) for word in row.split()[:2]] for row in rows]
    assert [eps for eps, _ in values] == [0, 0.2, 0.4]
    accuracies = [accuracy for _, accuracy in values]
    assert accuracies == sorted(accuracies, reverse=True)
    assert accuracies[0] > accuracies[-1]
    assert about.startswith("50 images of the test split, under pgd, in ")
    assert about.endswith(" s; best weights, of step 12")
    assert ran.err.splitlines() == [
        "regard: pgd on 50 images, 3 radii",
        f"regard: the accuracy against eps is drawn in {curve}",
        f"regard: attacked images are drawn in {picture}",
    ]
    for path in (curve, picture):
        with Image.open(path) as image:
            assert min(image.size) > 200
    # the same command draws the same bytes, and radius 0 has the accuracy of `regard evaluate`
    before = picture.read_bytes()
    told = regard("attack", gated, "--eps", 0.4, "--points", 3, "--count", 50, "--json", "--picture", picture)
    assert picture.read_bytes() == before
    values = json.loads(told.out)
    assert [point["accuracy"] for point in values["curve"]] == pytest.approx(accuracies)
    assert (values["attack"], values["images"], values["step"], values["warnings"]) == ("pgd", 50, 12, [])
    clean = json.loads(regard("attack", gated, "--eps", 0.1, "--points", 2, "--attack", "fgsm", "--json").out)
    scores = json.loads(regard("evaluate", gated, "--json").out)["scores"]
    assert clean["images"] == 359
    assert clean["curve"][0]["accuracy"] == pytest.approx(scores["accuracy"])


def test_glimpses(regard: Regard, tmp_path: Path) -> None:
    model = ["--glimpses", "2", "--patch", "4", "--hidden", "8", "--what", "8", "--where", "8", "--glimpse", "8"]
    assert regard("train", "glimpse", *TINY, *model, "--out", tmp_path / "run").code == 0
    ran = regard("attack", tmp_path / "run", "--eps", 0.5, "--points", 2, "--count", 30, "--attack", "fgsm")
    assert ran.code == 0, ran.err
    assert (
        "regard: warning: the model draws random numbers in evaluation mode; gradients and verdicts are means over "
        "10 samples"
    ) in ran.err.splitlines()


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (
            ["--eps", "8"],
            "--eps must be more than 0 and at most 1, as pixels are from 0 to 1, got 8; 8 of 255 grey levels are --eps "
            "0.0314",
        ),
        (["--points", "1"], "--points must be 2 or more, 0 and --eps, got 1; try --points 5"),
        (["--count", "0"], "--count must be 1 or more, got 0; try --count 500"),
        (["--attack", "pdg"], "unknown --attack 'pdg'; did you mean 'pgd'? known are: fgsm, pgd, mi-fgsm, "),
        (["--curve", "curve.txt"], "unknown suffix of --curve '.txt'; known are: .png, .svg, .pdf"),
        (["--picture", "nix/x.png"], "--picture nix/x.png: there is no folder nix; make it first"),
        (["--split", "train"], "unknown --split 'train'; known are: valid, test"),
    ],
)
def test_wrong_input_is_one_sentence(args: list[str], sentence: str, regard: Regard, gated: Path) -> None:
    ran = regard("attack", gated, *args)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[-1].startswith(f"regard: {sentence}")


def test_runs_that_read_no_images(regard: Regard, trained: Path) -> None:
    ran = regard("attack", trained)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"regard: {trained} is a run of translate, and regard attack changes the pixels of images; name a run of "
        "classify-image or glimpse\n"
    )


def test_nothing_broken_is_no_picture(regard: Regard, gated: Path, tmp_path: Path) -> None:
    ran = regard("attack", gated, "--eps", 1e-6, "--count", 5, "--points", 2, "--picture", tmp_path / "a.png")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith(
        "regard: --picture draws images that pgd broke, and it broke none; raise --eps, or leave it out\n"
    )
    assert not (tmp_path / "a.png").exists()


def test_the_help_names_the_attacks(regard: Regard) -> None:
    ran = regard("attack", "--help")
    assert ran.code == 0
    assert "worst" in ran.out
    assert "--split" in ran.out
