"""regard attribute and regard faithfulness: scores of words, tables, JSON, a figure and a page."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image
from tests.attribution.conftest import short_search as short_search
from tests.cli.conftest import Refused, Regard, train
from tests.for_each import for_each
from tests.tasks.cases import write_files
from tests.tasks.encoders import vit_encoder_folder

TEXT = "a good film . it was long"
METHODS = ["attention", "integrated-gradients", "leave-one-out"]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of classify-text, match, tag and translate after two steps."""
    folder = tmp_path_factory.mktemp("explained")
    write_files(folder)
    sizes = {
        "classify-text": "--width 5 --hidden 6 --hops 2 --feed 7 --batch 64 --train texts.txt",
        "match": "--embedding 5 --characters 4 --hidden 6 --batch 64 --train sentences.tsv",
        "tag": "--embedding 5 --characters 4 --hidden 6 --batch 64 --train columns.tsv",
        "translate": "--tokens words --width 6 --hidden 8 --batch 64 --valid-lines 3 --train pairs.tsv",
    }
    for task, options in sizes.items():
        options, _, file = options.rpartition(" ")
        train(folder / task, task, f"--steps 2 --warmup 1 --threads 1 {options}", folder / file)
    return folder


@pytest.fixture
def vit(tmp_path: Path) -> Path:
    """A model of pictures in transformers' layout."""
    return vit_encoder_folder(tmp_path / "vit", "ViTForImageClassification")


def test_scores_and_a_picture(regard: Regard, runs: Path, tmp_path: Path) -> None:
    picture = tmp_path / "text.png"
    ran = regard(
        "attribute", runs / "classify-text", TEXT, "--target", "bad", "--methods", *METHODS, "--picture", picture
    )
    assert ran.code == 0, ran.err
    first, *lines = ran.out.splitlines()
    assert first.startswith("bad ")
    assert ", logit " in first
    assert [line.split(":")[0] for line in lines[-3:]] == METHODS
    assert "(their sum misses f(x) − f(x') = " in lines[-2]
    assert ran.err.splitlines() == [f"regard: the scores are drawn in {picture}"]
    with Image.open(picture) as image:
        assert min(image.size) > 100


def test_json(regard: Regard, runs: Path) -> None:
    ran = regard("attribute", runs / "match", "a b c\ta c", "--methods", *METHODS, "--json")
    assert ran.code == 0, ran.err
    found = [json.loads(line) for line in ran.out.splitlines()]
    assert [each["method"] for each in found] == METHODS
    for each in found:
        assert each["text"] == "a b c\ta c"
        assert each["tokens"] == ["a", "b", "c", "a", "c"]
        assert len(each["scores"]) == 5
        assert each["target"] in ("same", "other")
        assert (each["completeness"] is None) == (each["method"] != "integrated-gradients")
    assert sum(found[1]["scores"]) == pytest.approx(found[1]["completeness"]["difference"], abs=0.02)


def test_the_patches_of_a_picture(regard: Regard, refused: Refused, vit: Path, tmp_path: Path) -> None:
    given, picture = tmp_path / "given.png", tmp_path / "patches.png"
    Image.linear_gradient("L").resize((8, 8)).save(given)
    names = ["attention", "relevance", "integrated-gradients"]
    ran = regard("attribute", vit, given, "--methods", *names, "--picture", picture)
    assert ran.code == 0, ran.err
    _, head, *lines = ran.out.splitlines()
    assert head == "2 × 2 patches, named (row, column) from the upper left"
    assert [line.split(":")[0] for line in lines] == names
    assert all(line.count("(") >= 4 for line in lines)
    assert ran.err.splitlines() == [f"regard: the scores are drawn in {picture}"]
    with Image.open(picture) as drawn:
        assert min(drawn.size) > 100
    found = json.loads(regard("attribute", vit, given, "--methods", "gradient", "--json").out)
    assert found["grid"] == [2, 2]
    assert len(found["scores"]) == 5
    over = f"--picture {given} is the picture and would be written over; name another file"
    assert refused("attribute", vit, given, "--picture", given) == over


def test_faithfulness(regard: Regard, runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ran = regard("faithfulness", runs / "classify-text", TEXT, "--methods", *METHODS, "--page", page)
    assert ran.code == 0, ran.err
    head, *rows = ran.out.splitlines()
    assert head.split() == ["method", "comprehensiveness", "sufficiency", "τ", "to", "leave-one-out"]
    assert [row.split()[0] for row in rows[:4]] == [*METHODS, "random"]
    assert rows[2].split()[-1] == "1.00"
    assert rows[4].startswith("a very different attention gives the same output: ")
    assert "the attention of this model" in rows[5].lower()
    assert ran.err.splitlines() == [f"regard: the page is in {page}"]
    assert "other attention, same output" in page.read_text(encoding="utf-8")
    told = regard("faithfulness", runs / "classify-text", TEXT, "a bad film", "--methods", *METHODS, "--json")
    first, second = (json.loads(line) for line in told.out.splitlines())
    assert first["verdict"] == rows[5]
    assert second["text"] == "a bad film"
    assert set(first["comprehensiveness"]) == set(METHODS)
    assert set(first["agreement"]) == {
        "attention, integrated-gradients",
        "attention, leave-one-out",
        "integrated-gradients, leave-one-out",
    }
    assert 0 <= first["attention"]["adversarial"]["change"] <= 0.01
    several = regard("faithfulness", runs / "classify-text", TEXT, "a bad film", "--methods", *METHODS)
    assert len(several.out.splitlines()) == 6


@for_each(
    ("args", "sentence"),
    [
        (["attribute", "classify-text", TEXT, "--methods", "rolout"], r"unknown method 'rolout'; did you mean 'rollo"),
        (
            ["attribute", "classify-text", TEXT, "--target", "godo"],
            r"unknown --target 'godo'; did you mean 'good'\? kn",
        ),
        (["attribute", "translate", "a b", "--target", "zzz"], "unknown (--)?target in the translation '.*' 'zzz'; na"),
        (["faithfulness", "classify-text", TEXT, "a", "--page", "page.html"], "--page shows one text, and 2 are given"),
        (
            ["faithfulness", "translate", "a b"],
            "regard faithfulness explains no output of a run of translate; name a run that classifies texts or images$",
        ),
    ],
)
def test_bad_input(refused: Refused, runs: Path, args: list[str], sentence: str) -> None:
    verb, run, *rest = args
    assert re.match(sentence, refused(verb, runs / run, *rest))


@pytest.mark.parametrize(("task", "text"), [("tag", "to B C"), ("translate", "a b")])
def test_tags_and_translations(regard: Regard, runs: Path, tmp_path: Path, task: str, text: str) -> None:
    picture = tmp_path / "text.png"
    target = ["--target", "B C=PLACE"] if task == "tag" else []
    ran = regard("attribute", runs / task, text, *target, "--methods", *METHODS, "--picture", picture)
    assert ran.code == 0, ran.err
    first, *lines = ran.out.splitlines()
    assert ", logit " in first
    if target:
        assert first.startswith("B C: PLACE ")
    assert [line.split(":")[0] for line in lines[-3:]] == METHODS
    assert picture.stat().st_size > 1000


def test_faithfulness_of_a_picture(regard: Regard, vit: Path, tmp_path: Path) -> None:
    given, page = tmp_path / "given.png", tmp_path / "page.html"
    Image.linear_gradient("L").resize((8, 8)).save(given)
    ran = regard("faithfulness", vit, given, "--methods", "attention", "leave-one-out", "--page", page)
    assert ran.code == 0, ran.err
    assert "random patches" in ran.out
    assert "removing the patches that it ranks highest" in ran.out
    assert "data:image/png;base64," in page.read_text(encoding="utf-8")
