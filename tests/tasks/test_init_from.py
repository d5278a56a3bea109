"""`regard train TASK --init-from RUN` on data that fits the run, and on data that does not: classes, tags, sizes."""

import json
import shutil
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


def write_tags(path: Path, label: str) -> Path:
    words = [f"to O\n{name} B-{label}\n\n" for name in "ABABABCD"]
    path.write_text("".join(words))
    return path


TEXT = ["--width", "4", "--hidden", "4", "--hops", "1", "--feed", "4", "--batch", "64"]


def test_fewer_classes_keep_the_numbers_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, then = (
        write_texts(tmp_path / "a.txt", "bad", "fair", "good"),
        write_texts(tmp_path / "b.txt", "fair", "good"),
    )
    assert train("classify-text", "--train", first, *TEXT, "--out", tmp_path / "first") == 0
    assert train("classify-text", "--train", then, "--init-from", tmp_path / "first", "--out", tmp_path / "then") == 0
    predictor = regard.load(tmp_path / "then", device="cpu")
    assert predictor.classes == ["bad", "fair", "good"]  # type: ignore[attr-defined]
    assert read_config(tmp_path / "then").model == read_config(tmp_path / "first").model
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


def test_dropout_and_data_may_be_others(tmp_path: Path) -> None:
    texts = write_texts(tmp_path / "a.txt", "bad", "good")
    assert train("classify-text", "--train", texts, *TEXT, "--out", tmp_path / "first") == 0
    again = ["--init-from", tmp_path / "first", "--dropout", "0.5", "--seed", "3", "--out", tmp_path / "then"]
    assert train("classify-text", "--train", texts, *again) == 0
    assert (read_config(tmp_path / "then").model.dropout, read_config(tmp_path / "then").model.width) == (0.5, 4)


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


def test_tags_must_be_those_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, wrong = write_tags(tmp_path / "a.conll", "PLACE"), write_tags(tmp_path / "b.conll", "TIME")
    sizes = ["--embedding", "4", "--characters", "4", "--hidden", "4"]
    assert train("tag", "--train", first, *sizes, "--out", tmp_path / "first") == 0
    capsys.readouterr()
    assert train("tag", "--train", wrong, "--init-from", tmp_path / "first", "--out", tmp_path / "no") == 2
    assert "unknown tag 'B-TIME'" in capsys.readouterr().err
    assert train("tag", "--data", "fields", "--init-from", tmp_path / "first", "--out", tmp_path / "no") == 2
    error = capsys.readouterr().err
    assert "which the run to start from does not know; it knows O, B-PLACE, I-PLACE: take the tag out" in error


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


def test_answers_and_intents_must_be_those_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def write_stories(name: str, *places: str) -> Path:
        path = tmp_path / name / "moves_train.txt"
        path.parent.mkdir()
        path.write_text(
            "".join(f"1 A{n} went to {at}.\n2 Where is A{n}?\t{at}\t1\n" for n in range(5) for at in places)
        )
        return path

    def write_intents(name: str, *intents: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        for file, line in (("seq.in", "go w{}"), ("seq.out", "VERB NOUN"), ("label", "{}")):
            lines = (line.format(intent if file == "label" else f"{n}{intent}") for n in range(5) for intent in intents)
            (folder / file).write_text("".join(f"{each}\n" for each in lines))
        return folder

    small = ["--embedding", "4", "--characters", "4", "--hidden", "4"]
    for task, first, wrong, sizes, sentence in (
        (
            "answer",
            write_stories("a", "hall", "park"),
            write_stories("b", "hall", "moon"),
            ["--width", "4", "--hops", "1", "--restarts", "1"],
            "the answer 'moon' is none of the training; this run knows hall, park; correct it, or",
        ),
        (
            "tag",
            write_intents("c", "play", "stop"),
            write_intents("d", "play", "halt"),
            small,
            "has the intent 'halt', which is none of the training sentences; theirs: play, stop",
        ),
    ):
        assert train(task, "--train", first, *sizes, "--out", tmp_path / f"first-{task}") == 0
        capsys.readouterr()
        assert train(task, "--train", wrong, "--init-from", tmp_path / f"first-{task}", "--out", tmp_path / "no") == 2
        assert sentence in capsys.readouterr().err
