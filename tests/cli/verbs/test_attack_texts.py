"""regard attack on runs that read texts: the table, the typed texts, the picture, and wrong input."""

import json
import random
import re
import shlex
from pathlib import Path

import pytest
from PIL import Image
from tests.cli.conftest import Refused, Regard, train
from tests.for_each import for_each
from tests.tasks.encoders import bert_folder

TINY = "--threads 1 --warmup 1 --steps 40 --lr 0.03 --validate-every 40 --batch 256"


@pytest.fixture(scope="session")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of texts whose class is that of one word."""
    folder, rng = tmp_path_factory.mktemp("topics"), random.Random(0)
    lines = []
    for n in range(120):
        words = [rng.choice(["the", "film", "was", "so", "and"]) for _ in range(4)]
        words[rng.randrange(4)] = rng.choice(["good", "fine"] if n % 2 else ["bad", "poor"])
        lines.append(f"{'up' if n % 2 else 'down'}\t{' '.join(words)}")
    (folder / "texts.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    model = "--width 8 --hidden 8 --hops 2 --feed 8 --word-dropout 0"
    return train(folder / "run", "classify-text", f"{TINY} {model}", "--train", folder / "texts.tsv")


def test_the_table_and_the_picture(regard: Regard, topics: Path, tmp_path: Path) -> None:
    picture = tmp_path / "attacked.png"
    ran = regard("attack", topics, "--count", 6, "--flips", 2, "--picture", picture)
    assert ran.code == 0, ran.err
    *rows, about = ran.out.splitlines()
    names = ["clean accuracy", "accuracy under attack", "flips", "queries", "unreachable"]
    assert [row[:23].rstrip() for row in rows] == names
    clean, under, flips, queries, unreachable = (float(row[23:].split()[0]) for row in rows)
    assert clean > under
    assert 1 <= flips <= 2
    assert queries > 3
    assert unreachable == 0
    assert about.startswith(f"6 texts of the validation texts of {topics}, which has no test texts, under hotflip, in ")
    assert about.endswith(" s; best weights, of step 40")
    assert ran.err.splitlines() == ["regard: hotflip on 6 texts", f"regard: attacked texts are drawn in {picture}"]
    with Image.open(picture) as image:
        assert min(image.size) > 100
    before = picture.read_bytes()
    # examples that the model has learned are named, as an evaluation names them
    seen = regard("attack", topics, "--count", 2, "--flips", 1, "--test", topics.parent / "texts.tsv", "--json")
    assert re.fullmatch(r".*texts\.tsv, \d+ of them trained on", json.loads(seen.out)["split"])
    told = regard("attack", topics, "--count", 6, "--flips", 2, "--picture", picture, "--json")
    assert picture.read_bytes() == before
    values = json.loads(told.out)
    assert values["clean_accuracy"] == pytest.approx(clean)
    assert values["accuracy"] == pytest.approx(under, abs=0.01)
    assert (values["attack"], values["texts"], values["step"], values["warnings"]) == ("hotflip", 6, 40, [])
    for example in values["examples"]:
        text = example["text"]
        for edit in example["edits"]:
            assert text[edit["start"] :].startswith(edit["before"]) or len(example["edits"]) > 1
            assert example["attacked"][edit["start"] :].startswith(edit["after"])
        if example["broken"] and not example["was_broken"]:
            assert example["prediction"].split()[0] != example["attacked_prediction"].split()[0]


def test_the_clean_accuracy_is_that_of_evaluate(regard: Regard, topics: Path) -> None:
    values = json.loads(regard("attack", topics, "--flips", 1, "--k", 1, "--json").out)
    scores = json.loads(regard("evaluate", topics, "--json").out)["scores"]
    assert values["clean_accuracy"] == pytest.approx(scores["accuracy"])


def test_triggers_are_named(regard: Regard, topics: Path) -> None:
    ran = regard("attack", topics, "--attack", "triggers", "--words", 2, "--count", 8)
    assert ran.code == 0, ran.err
    triggers = [row for row in ran.out.splitlines() if row.startswith("trigger ")]
    assert 1 <= len(triggers) <= 2
    assert all(len(row.split("'")[1].split()) == 2 for row in triggers)


def test_typed_texts(regard: Regard, topics: Path) -> None:
    ran = regard("attack", topics, "the film was good", "so bad", "--cosine", -1)
    assert ran.code == 0, ran.err
    first, predictions, *_ = ran.out.splitlines()
    assert "[" in first
    assert " -> " in first
    assert predictions.startswith("  up ")
    assert " -> down " in predictions
    # nothing is near enough to stand in place of a word
    kept = regard("attack", topics, "the film was good", "--cosine", 1, "--edit-distance", 1)
    assert kept.out.splitlines()[0] == "resists: the film was good"


def test_a_released_model_reads_typed_texts(regard: Regard, refused: Refused, tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "bert", "BertForSequenceClassification", num_labels=3)
    ran = regard("attack", folder, "a good film", "--json", "--k", 4, "--flips", 1)
    assert ran.code == 0, ran.err
    (example,) = json.loads(ran.out)["examples"]
    assert example["text"] == "a good film"
    assert refused("attack", folder) == (
        f"{folder} is a released model, which has no held-out texts; type texts behind it, or attack it on your own in "
        "Python, by regard.attack(regard.load(folder), inputs, targets, attack)"
    )


def test_nothing_broken_is_no_picture(regard: Regard, topics: Path, tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    ran = regard("attack", topics, "the film was good", "--cosine", 1, "--picture", picture)
    assert ran.code == 0
    assert ran.out.startswith("resists: ")
    assert f"regard: hotflip broke no text, so {picture} is not drawn; allow more changes, or a larger --k\n" in ran.err
    assert not picture.exists()


@for_each(
    ("words", "sentence"),
    {
        "--k 0": "--k must be 1 or more, got 0; try --k 64",
        "--flips 0": "--flips must be 1 or more, got 0; try --flips 3",
        "--attack pgd": "--attack pgd changes the pixels of images, and RUN is a run of classify-text; use --attack "
        "hotflip or triggers or characters",
        "--attack triggers --flips 2": "--flips 2 means nothing to --attack triggers; leave it out, or use --attack "
        "hotflip",
        "--attack triggers --beam 2": "--beam 2 means nothing to --attack triggers; leave it out, or use --attack "
        "hotflip or characters",
        "--cosine 2": "--cosine must be from -1 to 1, got 2.0; try --cosine 0.5",
        "' '": "inputs must be texts with a token at least, and text 1 is ' '; leave it out",
        "good --count 3": "--count chooses held-out texts, and 'good' is typed to be attacked instead; leave one of "
        "them out",
        "--eps 0.1": "--eps is an option of classify-image and glimpse, not of this task; ",
    }.items(),
)
def test_wrong_input_is_one_sentence(words: str, sentence: str, refused: Refused, topics: Path) -> None:
    assert refused("attack", topics, *shlex.split(words)).startswith(sentence.replace("RUN", str(topics)))


def test_a_bag_of_words_has_no_vectors(regard: Regard, refused: Refused, topics: Path, tmp_path: Path) -> None:
    model = "--model bag-of-words --threads 1 --steps 4"
    run = train(tmp_path / "run", "classify-text", model, "--train", topics.parent / "texts.tsv")
    assert refused("attack", run).startswith("HotFlip compares vectors of tokens, and BagOfWords has no embedding of ")
    assert regard("attack", run, "--attack", "characters", "--count", 2).code == 0


@for_each(
    ("words", "sentence"),
    {
        "": "an attack on a translator needs a word, --target-word or --forbidden-word, and neither is given; type "
        "one of them",
        "--target-word a --forbidden-word b": "an attack on a translator needs a word, --target-word or "
        "--forbidden-word, and both are given; type one of them",
        "--target-word 'a b'": "--target-word must be one word, got 'a b'; type a word of the translation, without "
        "spaces",
        "--forbidden-word ''": "--forbidden-word must be one word, got ''; type a word of the translation, without "
        "spaces",
        "--target-word '⁂'": "the word '⁂' is not in the vocabulary of translations, so none can have it; name a word "
        "of the training targets",
    }.items(),
)
def test_words_of_translations(words: str, sentence: str, refused: Refused, trained: Path) -> None:
    assert refused("attack", trained, *shlex.split(words)) == sentence
