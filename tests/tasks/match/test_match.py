"""The task match: files, texts that are no pair, the bag of words, the picture, and twins."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import regard
from regard.cli.main import main
from regard.data.embedded import quantifiers
from regard.inference.predictor import labelled_recording
from regard.tasks.match.baseline import baseline_reader, fit_baseline
from regard.tasks.match.building import model_parts
from regard.tasks.match.data import PAIR_PATTERN, PairFacts, parse_pair, read
from regard.tasks.match.encoders import smallest_source
from regard.tasks.match.options import Match
from regard.tasks.match.predictor import MatchPredictor
from regard.tasks.match.readers import FeatureReader, WordReader
from regard.tasks.shared.classification import class_scores

PAIRS = [
    ("entails", "a dog runs", "an animal runs"),
    ("differs", "an animal runs", "a dog runs"),
    ("entails", "a cat sits there", "an animal sits there"),
    ("differs", "an animal sits", "a cat sits"),
] * 4
SMALL = ["--embedding", "4", "--dropout", "0", "--batch", "64", "--threads", "1", "--warmup", "1"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("match")
    (folder / "pairs.tsv").write_text(
        "".join(f"{label}\t{n} {first}\t{second}\n" for n, (label, first, second) in enumerate(PAIRS))
    )
    rows = [{"gold_label": label, "sentence1": f"{n} {a}", "sentence2": b} for n, (label, a, b) in enumerate(PAIRS)]
    rows[3]["gold_label"] = "-"
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def run(files: Path) -> Path:
    train(files, "--train", str(files / "pairs.tsv"), "--hidden", "5")
    return files / "run"


def train(folder: Path, *options: str, name: str = "run") -> None:
    args = ["train", "match", *options, *SMALL, "--steps", "2", "--validate-every", "2", "--out", str(folder / name)]
    assert main(args) == 0


def predictor_of(run: Path) -> MatchPredictor:
    predictor = regard.load(run, device="cpu")
    return predictor


def test_pairs_without_a_label_are_counted(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, "--train", str(files / "pairs.jsonl"), "--valid", str(files / "pairs.tsv"), "--hidden", "5")
    assert "15 pairs to train on, 16 to validate, 2 classes" in capsys.readouterr().out
    record = json.loads((tmp_path / "run" / "pairs.json").read_text())
    assert (record["train"], record["classes"]) == (15, ["differs", "entails"])
    assert main(["evaluate", str(tmp_path / "run"), "--test", str(files / "pairs.jsonl")]) == 0
    printed = capsys.readouterr().out
    assert "1 pair without a label left out" in printed
    assert "bag of words, the baseline: accuracy" in printed
    assert "hardest classes: " in printed


def test_columns_are_named(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sick.txt"
    path.write_text(
        "id\tsentence_A\tsentence_B\tscore\n" + "".join(f"1\t{n} {a}\t{b}\t{c}\n" for n, (c, a, b) in enumerate(PAIRS))
    )
    train(tmp_path, "--train", str(path), "--columns", "sentence_A,sentence_B,score", "--hidden", "5")
    assert PairFacts.read(tmp_path / "run").classes == ["differs", "entails"]
    capsys.readouterr()
    assert main(["train", "match", "--train", str(path), "--columns", "1,2", "--steps", "1"]) == 2
    assert "columns must be three names or numbers" in capsys.readouterr().err
    assert main(["train", "match", "--columns", "1,2,3", "--steps", "1"]) == 2
    assert "--columns 1,2,3 belongs to pairs of your own; give train as well" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "one text",
            "a pair must be two texts with a tab between them, or on two lines, got 'one text'; type",
        ),
        ("a\tb\tc", "a pair must be two texts with a tab between them"),
        ("a\t ", r"the second text of 'a\\t ' is empty; give both texts"),
        ("\tb", r"the first text of '\\tb' is empty; give both texts"),
        ("a\t" + "b " * 9, r"the second text, 'b b b b b b b b b ', has 9 words, more than max_length=8 of this run"),
    ],
)
def test_what_is_no_pair(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_pair(text, 8)


def test_two_arguments_are_a_pair() -> None:
    assert Match.join_texts(["a b", "c", "d", "e"]) == ["a b\tc", "d\te"]
    for texts in (["a b\tc", "d\te"], ["a b\nc", "d\ne"], ["a", "b", "c"], ["-"], []):
        assert Match.join_texts(texts) == texts


def test_a_pair_is_typed_as_two_texts(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for texts in (["a dog", "a cat"], ["a dog\ta cat"]):
        capsys.readouterr()
        assert main(["predict", str(run), *texts]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].count("\n") == 1
    assert main(["predict", str(run), "a dog"]) == 2
    assert "or behind a command one text after the other" in capsys.readouterr().err


def test_two_lines_are_a_pair() -> None:
    assert parse_pair("a b\nc", 8) == parse_pair("a b\tc", 8) == parse_pair("a b\nc\n", 8) == ("a b", "c")


def test_a_text_of_ten_thousand_words(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = "word " * 10_000
    assert main(["predict", str(run), f"a\t{long}"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "has 10,000 words, more than max_length=400 of this run; shorten it" in printed.err
    path = tmp_path / "long.tsv"
    path.write_text(f"entails\ta\tb\ndiffers\t{long}\tb\n")
    assert main(["train", "match", "--train", str(path), "--steps", "1", "--out", str(tmp_path / "run")]) == 2
    assert "long.tsv:2: the first text has 10,000 words, more than --max-length 400" in capsys.readouterr().err
    assert main(["evaluate", str(run), "--test", str(path)]) == 2
    assert "shorten it, or raise the limit" in capsys.readouterr().err


def test_labels_and_files_that_do_not_fit(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.tsv"
    path.write_text("unrelated\ta\tb\n")
    assert main(["evaluate", str(run), "--test", str(path)]) == 2
    assert "other.tsv has no label that the run knows, only 'unrelated'; the run knows differs, entails" in (
        capsys.readouterr().err
    )
    assert main(["train", "match", "--train", str(path), "--steps", "1", "--out", str(tmp_path / "run")]) == 2
    assert "'unrelated', so there is nothing to learn; give pairs of another class as well" in capsys.readouterr().err


def test_the_bag_of_words_ignores_the_order() -> None:
    reader = FeatureReader(["a", "b", "c"], 50)
    assert reader.features("a b", "c a").tolist() == reader.features("b a a", "A c").tolist()
    assert reader.features("a b", "c a").tolist() != reader.features("c a", "a b").tolist()
    # word 1 in the first alone, word 2 in the second alone, word 0 in both
    assert {1 + 1, 1 + 3 + 2, 1 + 6 + 0} <= {*reader.features("a b", "c a").tolist()}
    assert max(reader.features("a b", "c a")) <= reader.size
    splits = quantifiers.splits(1, train=200, valid=20, test=100)
    facts = PairFacts.of(splits, 100)
    model, reader = fit_baseline(splits.train, facts), baseline_reader(facts)
    predictor = MatchPredictor(model, reader, facts.classes, max_length=99)
    shares = predictor.probabilities(reader.tokenize(splits.test.first, splits.test.second))
    # twins follow each other
    assert np.array_equal(shares[::2], shares[1::2])
    assert class_scores(shares, splits.test.labels)["accuracy"] <= 50


def test_a_bag_of_words_draws_nothing(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--train", str(files / "pairs.tsv"), "--model", "bag-of-words", "--buckets", "20", "--batch", "64"]
    assert main(["train", "match", *args, "--steps", "2", "--threads", "1", "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), "a\tb", "--picture", str(tmp_path / "x.png")]) == 2
    assert "--picture needs attention, and a bag of words has none; leave --picture out" in capsys.readouterr().err
    with pytest.raises(TypeError, match="MatchPredictor takes no tokens"):
        predictor_of(tmp_path / "run").embeddings(["a\tb"])
    assert (
        main(["compare", "match", *args[:4], "--attention", "dot", "--steps", "1", "--out", str(tmp_path / "c")]) == 2
    )
    assert "--model bag-of-words does not attend" in capsys.readouterr().err


def test_the_picture_has_both_texts_on_both_sides(run: Path, tmp_path: Path) -> None:
    predictor = predictor_of(run)
    text = "a dog runs\tan animal runs fast"
    output, recording = labelled_recording(predictor, text)
    (item,) = recording
    assert recording.labels(item) == ((*["a", "dog", "runs", "an", "animal", "runs", "fast"],),) * 2
    weights = item.weights.dense()[0]
    torch.testing.assert_close(weights.sum(-1), torch.ones(7))
    assert not weights[:3, :3].any()
    assert not weights[3:, 3:].any()
    for suffix in (".png", ".html", ".txt"):
        assert predictor.draw(recording, text, output, tmp_path / f"x{suffix}").stat().st_size > 100
    figure = predictor.draw(recording, text, output, tmp_path / "x.svg").read_text()
    assert ">1 runs<" in figure
    assert "cross attention, 7 × 7" in figure
    assert f"prediction: {predictor.text(output)[:5]}" in figure
    assert ">2 an<" in figure


def test_the_null_token_and_the_attention_within_texts_are_named(files: Path, tmp_path: Path) -> None:
    train(tmp_path, "--train", str(files / "pairs.tsv"), "--model", "decomposable", "--width", "6")
    _, recording = labelled_recording(predictor_of(tmp_path / "run"), "a dog\tan animal runs")
    assert recording.names == ("matcher.intra", "matcher.attention")
    assert recording.queries == ("∅", "a", "dog", "∅", "an", "animal", "runs")
    within, between = (item.weights.dense()[0] for item in recording)
    assert within[:3, :3].all()
    assert not within[:3, 3:].any()
    assert not between[:3, :3].any()


def test_words_are_dropped_by_the_seed() -> None:
    reader = WordReader(["a", "b"], ["a", "b"])
    tokens = reader.tokenize(["a b a b"] * 8, ["b a"] * 8)
    plain = reader.inputs(tokens)
    dropped = [reader.inputs(tokens, 0.5, np.random.default_rng(n)).words for n in (1, 1, 2)]
    assert dropped[0].equal(dropped[1])
    assert not dropped[0].equal(dropped[2])
    assert 10 < int((dropped[0] != plain.words).sum()) < 40


def test_held_out_pairs_share_no_first_text(files: Path) -> None:
    splits = read(Match.of(train=files / "pairs.tsv", valid_share=0.3))
    assert not {*splits.train.first} & {*splits.valid.first}


def test_esim_tells_twins_apart_and_words_alone_do_not() -> None:
    splits = quantifiers.splits(0, train=200, valid=2, test=60)
    facts = PairFacts.of(splits, 100)
    reader = WordReader(facts.words, [])
    tokens = reader.tokenize(splits.test.first, splits.test.second)
    model = (
        model_parts(Match.of(model="decomposable", intra=False, width=8).model, facts, smallest_source).build().eval()
    )
    with torch.no_grad():
        logits = model(reader.inputs(tokens))
    torch.testing.assert_close(logits[::2], logits[1::2])
    torch.manual_seed(0)
    model = model_parts(Match.of(model="esim", hidden=8).model, facts, smallest_source).build().eval()
    with torch.no_grad():
        logits = model(reader.inputs(tokens))
    assert not torch.isclose(logits[::2], logits[1::2], atol=1e-6).all(-1).any()


@given(st.text("ab \t\n", max_size=9))
def test_the_pattern_of_pairs_is_what_is_parsed(text: str) -> None:
    try:
        is_pair = bool(parse_pair(text, 100))
    except ValueError:
        is_pair = False
    assert (re.search(PAIR_PATTERN, text) is not None) == is_pair
