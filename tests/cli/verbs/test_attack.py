"""regard attack: the accuracy of a run against the radius of an attack, and that of texts before and after one."""

import json
import shlex
from pathlib import Path
from typing import get_args

import pytest
from PIL import Image
from tests.cli.conftest import Refused, Regard, train
from tests.for_each import for_each

from regard.attacks import ATTACKS, TEXT_ATTACKS
from regard.cli.verbs.attack import AttackName, ImageAttackName
from regard.tasks.shared.image_options import AttackImages
from regard.tasks.shared.text_options import AttackTexts

TINY = "--threads 1 --warmup 1 --steps 12 --batch 200 --lr 0.02"


@pytest.fixture(scope="session")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier whose gates look at places."""
    run = tmp_path_factory.mktemp("gated") / "run"
    return train(run, "classify-image", f"{TINY} --width 4 --depths 1 1 --gate spatial")


def test_the_names_are_those_of_the_catalogue() -> None:
    assert get_args(ImageAttackName) == tuple(ATTACKS)
    assert get_args(AttackName) == (*ATTACKS, *TEXT_ATTACKS)
    assert set(AttackImages.attacks) == set(ATTACKS)
    assert AttackTexts.attacks == tuple(TEXT_ATTACKS)


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
    model = "--glimpses 2 --patch 4 --hidden 8 --what 8 --where 8 --glimpse 8"
    run = train(tmp_path / "run", "glimpse", f"{TINY} {model}")
    ran = regard("attack", run, "--eps", 0.5, "--points", 2, "--count", 30, "--attack", "fgsm")
    assert ran.code == 0, ran.err
    assert (
        "regard: warning: the model draws random numbers in evaluation mode; gradients and verdicts are means over "
        "10 samples"
    ) in ran.err.splitlines()


@for_each(
    ("words", "sentence"),
    {
        "--eps 8": "--eps must be more than 0 and at most 1, as pixels are from 0 to 1, got 8; 8 of 255 grey levels "
        "are --eps 0.0314",
        "--points 1": "--points must be 2 or more, got 1; try --points 5",
        "--count 0": "--count must be 1 or more, got 0; leave it out",
        "--steps 0": "--steps must be 1 or more, got 0; leave it out",
        "--attack square --steps 5": "--steps 5 means nothing to --attack square; leave it out, or use --attack pgd "
        "or mi-fgsm or apgd-ce or apgd-dlr",
        "'a text'": "RUN is a run of classify-image, which reads no texts; leave 'a text' out",
        "--attack hotflip": "--attack hotflip changes the words of texts, and RUN is a run of classify-image; use "
        "--attack pgd or fgsm or mi-fgsm or apgd-ce or apgd-dlr or square or worst",
        "--attack pdg": "unknown --attack 'pdg'; did you mean 'pgd'? known are: fgsm, pgd, mi-fgsm, ",
        "--curve curve.txt": "unknown suffix of --curve '.txt'; known are: .png, .svg, .pdf",
    }.items(),
)
def test_wrong_input_is_one_sentence(words: str, sentence: str, refused: Refused, gated: Path) -> None:
    assert refused("attack", gated, *shlex.split(words)).startswith(sentence.replace("RUN", str(gated)))


def test_runs_that_cannot_be_attacked(refused: Refused, tmp_path: Path) -> None:
    run = train(tmp_path / "run", "language-model", "--threads 1 --steps 1 --width 8 --heads 2 --layers 1 --segment 16")
    assert refused("attack", run) == (
        f"{run} is a run of language-model, which regard attack does not change; name a run of translate, "
        "classify-image, glimpse, classify-text, tag, match"
    )


def test_steps_are_those_of_the_attack(regard: Regard, gated: Path) -> None:
    args = ["--count", 5, "--points", 2, "--json", "--steps"]
    few, many = (json.loads(regard("attack", gated, *args, n).out)["curve"][-1]["queries"] for n in (2, 5))
    assert many > few


def test_nothing_broken_is_no_picture(regard: Regard, gated: Path, tmp_path: Path) -> None:
    ran = regard("attack", gated, "--eps", 1e-6, "--count", 5, "--points", 2, "--picture", tmp_path / "a.png")
    # the table is printed all the same
    assert ran.code == 0
    assert ran.out.startswith("eps       accuracy\n0 ")
    assert f"regard: pgd broke no image, so {tmp_path / 'a.png'} is not drawn; raise --eps\n" in ran.err
    assert not (tmp_path / "a.png").exists()
