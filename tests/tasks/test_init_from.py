"""`regard train TASK --init-from RUN` on data that fits the run, and on data that does not: classes, tags, sizes."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.tasks.encoders import bert_folder

import regard
from regard.cli.main import main
from regard.tasks.registry import read_config

QUICK = ["--threads", "1", "--device", "cpu", "--steps", "1", "--warmup", "1"]


def train(*words: object) -> int:
    return main(["train", *map(str, words), *QUICK])


def write_texts(path: Path, *classes: str) -> Path:
    path.write_text("".join(f"{label}\ta {label} film {n % 5}\n" for label in classes for n in range(9)))
    return path


def write_images(folder: Path, *classes: str, side: int = 8) -> Path:
    draw = np.random.default_rng(0)
    for name in classes:
        (folder / name).mkdir(parents=True)
        for n in range(6):
            Image.fromarray(draw.integers(0, 255, (side, side), np.uint8)).save(folder / name / f"{n}.png")
    return folder


TEXT = ["--width", "4", "--hidden", "4", "--hops", "1", "--feed", "4", "--batch", "64"]


def test_fewer_classes_keep_the_numbers_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write_texts(tmp_path / "a.txt", "bad", "fair", "good")
    fewer = write_texts(tmp_path / "b.txt", "fair", "good")
    assert train("classify-text", "--train", first, *TEXT, "--out", tmp_path / "first") == 0
    again = ["--train", fewer, "--init-from", tmp_path / "first", "--dropout", "0.5", "--seed", "3"]
    assert train("classify-text", *again, "--out", tmp_path / "then") == 0
    predictor = regard.load(tmp_path / "then", device="cpu")
    assert predictor.classes == ["bad", "fair", "good"]  # type: ignore[attr-defined]
    models = [read_config(tmp_path / name).model for name in ("first", "then")]
    assert models[1] == replace(models[0], dropout=0.5)
    assert main(["evaluate", str(tmp_path / "then")]) == 0
    wrong = write_texts(tmp_path / "c.txt", "good", "odd")
    capsys.readouterr()
    assert train("classify-text", "--train", wrong, "--init-from", tmp_path / "first", "--out", tmp_path / "no") == 2
    assert "unknown label 'odd'" in capsys.readouterr().err
    assert train("classify-text", "--data", "phrases", "--init-from", tmp_path / "first", "--out", tmp_path / "no") == 2
    error = capsys.readouterr().err
    assert "phrases has the class" in error
    assert "which the model does not know; it knows bad, fair, good: take the class out" in error
    assert not (tmp_path / "no").exists()


def test_examples_of_the_run_to_start_from_are_not_scored_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither by the next run nor by one that starts from that."""
    texts = tmp_path / "a.txt"
    texts.write_text("".join(f"{'ab'[n % 2]}\ta text {n}\n" for n in range(40)))
    assert train("classify-text", "--train", texts, *TEXT, "--out", tmp_path / "run0") == 0
    note = "the run that this one starts from was trained on"
    for seed, number in ((0, 1), (1, 2), (0, 3)):
        options = ["--seed", seed, "--init-from", tmp_path / f"run{number - 1}"]
        capsys.readouterr()
        assert train("classify-text", "--train", texts, *options, "--out", tmp_path / f"run{number}") == 0
        is_learned = number > 1
        assert (note in " ".join(capsys.readouterr().out.split())) == is_learned
        assert main(["evaluate", str(tmp_path / f"run{number}"), "--json"]) == 0
        evaluation = json.loads(capsys.readouterr().out)
        assert (evaluation.get("trained_on", 0) > 0) == is_learned
        assert any(note in each for each in evaluation["notes"]) == is_learned
    assert main(["evaluate", str(tmp_path / "run3"), "--test", str(texts), "--json"]) == 0
    # the last run itself was trained on fewer
    assert json.loads(capsys.readouterr().out)["trained_on"] == 40


@pytest.mark.parametrize("task", ["classify-image", "glimpse"])
def test_images_keep_the_classes_and_the_size_of_the_run(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"classify-image": ["--width", "4", "--depths", "1"], "glimpse": ["--hidden", "4", "--glimpses", "2"]}[task]
    first = write_images(tmp_path / "a", "cat", "dog", "owl")
    assert train(task, "--train", first, *sizes, "--shift", "0", "--out", tmp_path / "first") == 0
    init = ["--init-from", tmp_path / "first", "--shift", "0"]
    then = write_images(tmp_path / "b", "owl", "cat")
    assert train(task, "--train", then, *init, "--out", tmp_path / "then") == 0
    stats = [regard.load(tmp_path / name, device="cpu").stats for name in ("first", "then")]  # type: ignore[attr-defined]
    assert stats[1].classes == ["cat", "dog", "owl"]
    assert (stats[1].mean, stats[1].spread) == (stats[0].mean, stats[0].spread)
    assert stats[1].sha256 != stats[0].sha256
    assert main(["evaluate", str(tmp_path / "then")]) == 0
    capsys.readouterr()
    assert train(task, "--train", write_images(tmp_path / "c", "cat", "cow"), *init, "--out", tmp_path / "no") == 2
    assert "has the class 'cow', which the model does not know; it knows cat, dog, owl" in capsys.readouterr().err
    large = write_images(tmp_path / "d", "cat", "dog", side=12)
    assert train(task, "--train", large, *init, "--out", tmp_path / "no") == 2
    assert "the images are (12, 12, 1), (height, width, channels), those of the run to start from (8, 8, 1); give " in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "no").exists()


def test_a_generator_needs_images_of_every_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write_images(tmp_path / "a", "cat", "dog", "owl")
    sizes = ["--width", "2", "--noise", "3", "--judge", "1", "--batch", "8"]
    assert train("generate-image", "--train", first, *sizes, "--out", tmp_path / "first") == 0
    capsys.readouterr()
    fewer = write_images(tmp_path / "b", "cat", "owl")
    assert train("generate-image", "--train", fewer, "--init-from", tmp_path / "first", "--out", tmp_path / "no") == 2
    assert "there are no images of dog, which the run to start from generates; give images" in capsys.readouterr().err


def test_another_model_or_tokens_conflict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("a good film, it was long\n" * 20)
    sizes = ["--width", "8", "--heads", "2", "--layers", "1", "--segment", "12", "--batch", "2"]
    assert train("language-model", "--train", tmp_path / "a.txt", *sizes, "--out", tmp_path / "first") == 0
    init = ["--train", tmp_path / "a.txt", "--init-from", tmp_path / "first", "--out", tmp_path / "no"]
    sentences = {
        "--model recurrent": "--model recurrent conflicts with --model gpt2 of",
        "--tokens bytes": "--tokens bytes conflicts with --tokens characters of",
        "--segment 9": "--segment 9 conflicts with --segment 12 of",
    }
    for words, text in sentences.items():
        capsys.readouterr()
        assert train("language-model", *init, *words.split()) == 2
        assert text in capsys.readouterr().err
    config = tmp_path / "config.toml"
    config.write_text('model = "recurrent"\n')
    assert train("language-model", *init, "--config", config) == 2
    assert "--model recurrent conflicts with --model gpt2 of" in capsys.readouterr().err
    assert train("language-model", *init[:-1], tmp_path / "then", "--segment", "12") == 0


def test_the_encoder_is_that_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, first = write_texts(tmp_path / "a.txt", "bad", "good"), tmp_path / "first"
    bert, other = bert_folder(tmp_path / "bert"), bert_folder(tmp_path / "other")
    assert train("classify-text", "--train", texts, "--encoder", bert, "--out", first) == 0
    init = ["classify-text", "--train", texts, "--init-from", first]
    capsys.readouterr()
    assert train(*init, "--encoder", other, "--out", tmp_path / "no") == 2
    assert f"--encoder {other} conflicts with --encoder {bert} of {first}" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
    # its weights are in the run
    shutil.rmtree(bert)
    assert train(*init, "--freeze", "embeddings", "--out", tmp_path / "then") == 0
    assert regard.load(tmp_path / "then", device="cpu").predict(["a good film"])


def write_tags(folder: Path, label: str) -> Path:
    folder.mkdir()
    (folder / "tags.conll").write_text("".join(f"to O\n{name} B-{label}\n\n" for name in "ABABABCD"))
    return folder / "tags.conll"


def write_stories(folder: Path, *places: str) -> Path:
    folder.mkdir()
    stories = [f"1 A{n} went to {at}.\n2 Where is A{n}?\t{at}\t1\n" for n in range(5) for at in places]
    (folder / "moves_train.txt").write_text("".join(stories))
    return folder / "moves_train.txt"


def write_intents(folder: Path, *intents: str) -> Path:
    folder.mkdir()
    for file, line in (("seq.in", "go w{}"), ("seq.out", "VERB NOUN"), ("label", "{}")):
        lines = (line.format(intent if file == "label" else f"{n}{intent}") for n in range(5) for intent in intents)
        (folder / file).write_text("".join(f"{each}\n" for each in lines))
    return folder


SMALL_TAGGER = ["--embedding", "4", "--characters", "4", "--hidden", "4"]


@pytest.mark.parametrize(
    ("task", "write", "labels", "sizes", "sentence"),
    [
        ("tag", write_tags, (["PLACE"], ["TIME"]), SMALL_TAGGER, "unknown tag 'B-TIME'"),
        (
            "tag",
            write_intents,
            (["play", "stop"], ["play", "halt"]),
            SMALL_TAGGER,
            "has the intent 'halt', which is none of the training sentences; theirs: play, stop",
        ),
        (
            "answer",
            write_stories,
            (["hall", "park"], ["hall", "moon"]),
            ["--width", "4", "--hops", "1", "--restarts", "1"],
            "the answer 'moon' is none of the training; this run knows hall, park; correct it, or",
        ),
    ],
)
def test_labels_must_be_those_of_the_run(
    task: str,
    write: Callable[..., Path],
    labels: tuple[list[str], list[str]],
    sizes: list[str],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, wrong = (write(tmp_path / str(n), *names) for n, names in enumerate(labels))
    assert train(task, "--train", first, *sizes, "--out", tmp_path / "first") == 0
    capsys.readouterr()
    assert train(task, "--train", wrong, "--init-from", tmp_path / "first", "--out", tmp_path / "no") == 2
    assert sentence in capsys.readouterr().err
    if write is write_tags:
        assert train("tag", "--data", "fields", "--init-from", tmp_path / "first", "--out", tmp_path / "no") == 2
        message = "which the run to start from does not know; it knows O, B-PLACE, I-PLACE: take the tag out"
        assert message in capsys.readouterr().err
