"""The task tag: answers that do not depend on the batch, offsets, spans, bad input."""

import json
import math
import random
from pathlib import Path

import pytest
import torch
from tests.for_each import for_each

import regard
from regard.cli.main import main
from regard.data.tagging.tagged import TaggedSentence
from regard.tasks.tag.data import TagVocabulary, read
from regard.tasks.tag.options import Tag
from regard.tasks.tag.predictor import TagPredictor
from regard.training.config import TrainingConfig
from regard.training.fit import fit

CITIES = ["Rome", "Oslo", "New York", "Rio", "Los Angeles", "Bern"]
SMALL = {"embedding": 8, "characters": 6, "hidden": 8, "batch": 128, "dropout": 0.0}


def sentences(count: int, seed: int = 0) -> list[tuple[list[str], list[str]]]:
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        words, tags = ["we", "fly", *["very"] * draw.randrange(3), "to"], []
        tags = ["O"] * len(words)
        for n, word in enumerate(draw.choice(CITIES).split()):
            words.append(word)
            tags.append("I-CITY" if n else "B-CITY")
        found.append(([*words, "today"], [*tags, "O"]))
    return found


def write(path: Path, count: int, seed: int = 0) -> Path:
    blocks = ["\n".join(f"{w}\t{t}" for w, t in zip(*pair, strict=True)) for pair in sentences(count, seed)]
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tag")
    write(folder / "train.tsv", 80)
    write(folder / "valid.tsv", 20, 1)
    task = Tag.of(train=folder / "train.tsv", valid=folder / "valid.tsv", **SMALL)
    training = TrainingConfig(steps=60, lr=2e-2, warmup=5, threads=1, device="cpu", schedule="constant")
    *_, last = fit(task, folder / "run", training)
    assert last.reason == "done"
    return folder / "run"


@pytest.fixture(scope="module")
def predictor(run: Path) -> TagPredictor:
    return regard.load(run, device="cpu")  # type: ignore[return-value]


def test_spans_have_offsets_probabilities_and_runners_up(predictor: TagPredictor) -> None:
    text = "we  fly to\tLos Angeles today"
    (output,) = predictor.predict([text])
    assert output.tags == ("O", "O", "O", "B-CITY", "I-CITY", "O")
    (span,) = output.spans
    assert (span.label, span.text) == ("CITY", "Los Angeles")
    assert text[slice(*span.characters)] == "Los Angeles"
    assert span.runner_up[0] == "O"
    assert span.runner_up[1] < span.probability <= 1
    assert span.probability > 0.5
    assert predictor.text(output).startswith("CITY: Los Angeles ")
    found = predictor.json(output)
    assert found["spans"][0]["start"] == text.index("Los")
    assert [word["word"] for word in found["words"]] == text.split()


def test_several_paths(predictor: TagPredictor, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["predict", str(run), "we fly to Rome today", "", "--paths", "3", "--json"]) == 0
    first, empty = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    shares = [path["probability"] for path in first["paths"]]
    assert len(shares) == 3
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) <= 1
    assert first["paths"][0]["tags"] == [word["tag"] for word in first["words"]]
    assert empty["words"] == empty["spans"] == []


def test_evaluation_names_both_readings(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["evaluate", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scores"]["strict f1"] > 80
    assert found["scores"]["strict f1"] == found["scores"]["lenient f1"]  # the crf writes no malformed sequence
    assert found["malformed"] == 0


@pytest.mark.parametrize("output", ["crf", "softmax"])
def test_untrained_models_and_malformed_sequences(output: str, tmp_path: Path) -> None:
    path = write(tmp_path / "train.tsv", 30)
    task = Tag.of(train=path, output=output, **SMALL)
    task.prepare(tmp_path)
    predictor = task.load().predictor(tmp_path)
    # scores of nothing but noise
    torch.manual_seed(0)
    torch.nn.init.normal_(predictor.model.words.weight, std=3.0)
    torch.nn.init.normal_(predictor.model.emission.weight, std=30.0)
    found = predictor.tag_words([words for words, _ in sentences(40, 3)])
    broken = sum(predictor.scheme.violation(each.tags) is not None for each in found)
    assert (broken == 0) == (output == "crf")


BAD = {
    "columns": ("a\tO\nb\n", "train.tsv:2: a line must have 2 columns"),
    "typo": ("a\tO\nb\tB-\nc\tI-X\n\nb\tB-\nc\tI-X\n\nc\tO\nb\tB-\nd\tI-X\n", "the tag 'B-' is none of IOB2, as 'I-X'"),
    "one column": ("fly7\nto\n\nfly8\n", "train.tsv:1: there is only one column in 'fly7'; the file must hold one"),
    "encoding": (b"a\tO\n\xff\tO\n", "UTF-8"),
    "long": ("a\tO\n" * 2001 + "\nb\tO\n", "more than --max-length 2,000; put an empty line between sentences"),
    "one text": (
        "a\tO\n\na\tB-X\n",
        "train.tsv has 2 sentences and too few different ones to hold some out; give more sentences, or --valid as",
    ),
    "one tag": ("a\tO\nb\tO\n\nc\tO\n", "has one tag, 'O', so there is nothing to learn; name another --column"),
}


@for_each("name", BAD)
def test_bad_files_are_one_sentence(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, error = BAD[name]
    path = tmp_path / "train.tsv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    args = ["train", "tag", "--train", str(path), "--out", str(tmp_path / "run"), "--steps", "1"]
    assert main(args) == 2
    said = capsys.readouterr().err
    assert error in said
    assert "Traceback" not in said


def test_data_of_another_run_may_have_no_other_intent(tmp_path: Path) -> None:
    def task(name: str, intent: str) -> Tag:
        folder = tmp_path / name
        folder.mkdir()
        for file, line in (("seq.in", "play it"), ("seq.out", "VERB PRON"), ("label", intent)):
            (folder / file).write_text(f"{line}\n" * 3)
        return Tag.of(train=folder, valid=folder, **SMALL)

    first, second = task("a", "play"), task("b", "stop")
    vocabulary = TagVocabulary.of(first, read(first))
    with pytest.raises(
        ValueError, match="line 1 has the intent 'stop', which is none of the training sentences; theirs"
    ):
        vocabulary.checked(second, read(second))


def test_conll_2003_as_published_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """IOB1 with a stray B- behind O: a counted warning, in training and in evaluation."""
    path, run = tmp_path / "eng.train", tmp_path / "run"
    rows = ["EU I-ORG\nrejects O", "Peter I-PER\nBlackburn I-PER\nleft O", "at O\nRome B-LOC", "U.N. I-ORG\nsaid O"]
    path.write_text("\n\n".join(rows * 3) + "\n", encoding="utf-8")
    args = ["--train", str(path), "--valid", str(path), "--embedding", "4", "--hidden", "4", "--threads", "1"]
    assert main(["train", "tag", *args, "--steps", "2", "--out", str(run)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "7 tags in IOB1" in said
    assert "eng.train has 3 tags that IOB1 forbids, the first in line 9: 'B-LOC' after 'O'" in said
    assert main(["evaluate", str(run)]) == 0
    assert "has 3 tags that IOB1 forbids" in " ".join(capsys.readouterr().out.split())


def test_text_is_split_as_the_training_file_splits_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Marks that are words of their own in the file are words of a text to tag; the end of the training says so."""
    path = tmp_path / "train.tsv"
    cities = [city for city in CITIES if " " not in city]
    rows = [f"{name}\tB-PER\nwas\tO\nin\tO\n{city}\tB-LOC\n.\tO\n" for name in ("Anna", "Bob") for city in cities]
    path.write_text("\n".join(rows), encoding="utf-8")
    args = ["train", "tag", "--train", str(path), "--embedding", "8", "--hidden", "8", "--threads", "1", "--lr", "0.02"]
    assert main([*args, "--steps", "30", "--out", str(tmp_path / "a")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Text to tag is split at spaces, and . is split off words, as in the training file." in said
    assert main(["predict", str(tmp_path / "a"), "Anna was in Oslo."]) == 0
    assert "LOC: Oslo " in capsys.readouterr().out
    path.write_text("\n".join([*rows, "10-B\tB-PER\nwas\tO\n"]), encoding="utf-8")
    args += ["--valid", str(path), "--steps", "1", "--words"]
    assert main([*args, "punctuation", "--out", str(tmp_path / "b")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Text to tag is split at spaces and punctuation." in said
    assert (
        "Of 9 training sentences, the text of 1 would be split otherwise than the file splits it, as '10 - B was'"
        in said
    )
    assert "for '10-B was'." in said


def test_bad_input_of_a_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.tsv"
    other.write_text("Rome\tX-TOWN\n", encoding="utf-8")
    assert main(["evaluate", str(run), "--test", str(other), "--out", str(tmp_path / "out.txt")]) == 2
    assert "other.tsv:1: the tag 'X-TOWN' is none of IOB2" in capsys.readouterr().err
    assert not (tmp_path / "out.txt").exists()
    assert main(["predict", str(run), "word " * 100_000]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "has 100,000 words, more than max_length=2,000 of this run; split it into sentences" in said.err
    assert main(["predict", str(run), "we fly", "--paths", "101"]) == 2
    assert "--paths must be from 1 to 100, got 101; try --paths 1" in capsys.readouterr().err
    window = tmp_path / "window"
    assert main(["train", "tag", "--train", str(run.parent / "train.tsv"), "--model", "window", "--steps", "1",
                 "--embedding", "4", "--hidden", "4", "--threads", "1", "--out", str(window)]) == 0  # fmt: skip
    capsys.readouterr()
    assert main(["predict", str(window), "we fly", "--picture", str(tmp_path / "a.png")]) == 2
    assert "--picture needs attention, and this tagger has none" in capsys.readouterr().err


def test_unknown_tags_of_a_test_file_count_as_missed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As seqeval and conlleval count them: ATIS has tags in its test set alone."""
    lines = (run.parent / "train.tsv").read_text(encoding="utf-8")
    other = tmp_path / "other.tsv"
    other.write_text(f"{lines.rstrip()}\n\nRome\tB-TOWN\n", encoding="utf-8")
    scores = []
    for path in (run.parent / "train.tsv", other):
        assert main(["evaluate", str(run), "--test", str(path), "--json"]) == 0
        scores.append(json.loads(capsys.readouterr().out))
    known, unknown = scores
    assert unknown["scores"]["recall"] < known["scores"]["recall"]
    assert unknown["scores"]["nll"] == pytest.approx(known["scores"]["nll"], rel=1e-4)
    assert main(["evaluate", str(run), "--test", str(other)]) == 0
    note = "tags or intents that the run never saw count as missed: 1 ('B-TOWN'); nll leaves out 1 sentence with them"
    assert note in " ".join("".join(capsys.readouterr()).split())
    # without a sentence of known tags there is no nll; 0 would be the best one
    other.write_text("Rome\tB-TOWN\n", encoding="utf-8")
    assert main(["evaluate", str(run), "--test", str(other), "--json"]) == 0
    assert "nll" not in json.loads(capsys.readouterr().out)["scores"]


def test_a_tag_that_only_the_held_out_part_has_is_known(tmp_path: Path) -> None:
    """Any file with rare tags has some that are held out with all their sentences."""
    lines = [f"word{n}\tRARE{n}\nother\tCOMMON\n" for n in range(12)]
    (tmp_path / "train.tsv").write_text("\n".join(lines), encoding="utf-8")
    config = Tag.of(train=tmp_path / "train.tsv", valid_share=0.3)
    vocabulary = TagVocabulary.of(config, read(config))
    assert {f"RARE{n}" for n in range(12)} < set(vocabulary.tags)


def test_an_intent_that_only_validation_has_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, intents in (("train", "play\nstop\n"), ("valid", "play\nhalt\n")):
        folder = tmp_path / name
        folder.mkdir()
        for file, text in (("seq.in", "play it\nstop\n"), ("seq.out", "VERB PRON\nVERB\n"), ("label", intents)):
            (folder / file).write_text(text, encoding="utf-8")
    args = ["--train", str(tmp_path / "train"), "--valid", str(tmp_path / "valid"), "--out", str(tmp_path / "run")]
    assert main(["train", "tag", *args, "--steps", "1"]) == 0
    assert "3 intents" in capsys.readouterr().out


def test_the_summary_of_one_of_each_is_singular(tmp_path: Path) -> None:
    for name in ("train", "valid"):
        (tmp_path / f"{name}.tsv").write_text("we\tB-X\nwe\tO\n", encoding="utf-8")
    task = Tag.of(train=tmp_path / "train.tsv", valid=tmp_path / "valid.tsv", **SMALL)
    (tmp_path / "run").mkdir()
    summary = task.load().prepare(tmp_path / "run", new=True).summary
    assert summary.startswith("1 sentence to train on, the longest of 2 words, 1 to validate, 3 tags in IOB2, 1 word")


def test_the_mean_nll_is_never_below_zero(predictor: TagPredictor, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [TaggedSentence.of(["we", "fly"], ["O", "O"]), TaggedSentence.of(["to"], ["O"])]
    for values, mean in (([-2e-8, -1e-8], 0.0), ([-1e-8, 3.0], 1.0)):
        monkeypatch.setattr(predictor, "_nll", lambda *_, values=values: torch.tensor(values))
        assert predictor.mean_nll(given) == mean
    monkeypatch.setattr(predictor, "_nll", lambda *_: torch.tensor([torch.nan, 1.0]))
    assert math.isnan(predictor.mean_nll(given))


def test_the_loss_wants_one_tag_per_word(predictor: TagPredictor) -> None:
    with pytest.raises(ValueError, match="target must have one tag per word, got 1 for 2 words"):
        predictor.loss(["we fly"], ["O"])
    with pytest.raises(ValueError, match="unknown tag 'B-X'"):
        predictor.loss(["we"], ["B-X"])


def test_a_window_cannot_be_compared_with_itself() -> None:
    with pytest.raises(
        ValueError,
        match="--model window does not attend, so there is nothing to compare; leave --model out: a window is always",
    ):
        Tag.of(model="window").variants(["dot"])


def test_learned_positions_are_enough_or_refused_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "long.conll"
    file.write_text(("word B-X\n" * 600 + "\n") * 2 + "a O\n\n" * 9, encoding="utf-8")
    sizes = ["--width", "4", "--heads", "1", "--layers", "1", "--embedding", "4", "--batch", "1300", "--threads", "1"]
    files = ["--train", str(file), "--valid", str(file)]
    command = ["train", "tag", *files, "--model", "transformer", *sizes, "--steps", "1", "--positions", "learned"]
    assert main([*command, "--longest", "512", "--out", str(tmp_path / "short")]) == 2
    said = (
        "has a sentence of 600 words, and --positions learned has --longest 512 positions; shorten it, or train with "
    )
    assert said + "--longest 600 or --positions sinusoidal" in capsys.readouterr().err
    assert main([*command, "--out", str(tmp_path / "run")]) == 0


def test_tags_without_labels_are_spans(tmp_path: Path) -> None:
    """As in seqeval; they were two labels, B and I, so that an F1 of spans was one of words."""
    path = tmp_path / "train.tsv"
    path.write_text("we\tO\nsaw\tO\nNew\tB\nYork\tI\n\nin\tO\nRome\tB\n\n" * 6, encoding="utf-8")
    splits = read(Tag.of(train=path))
    vocabulary = TagVocabulary.of(Tag.of(train=path), splits)
    assert (vocabulary.scheme, vocabulary.tags) == ("IOB2", ["O", "B-SPAN", "I-SPAN"])
    plain = Tag.of(train=path, scheme="none")
    assert set(TagVocabulary.of(plain, read(plain)).tags) == {"B", "I", "O"}
