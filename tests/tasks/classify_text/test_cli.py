"""classify-text on the command line: the formats of files, the notes of its verbs, mistakes in one sentence."""

import gzip
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tasks.classify_text.texts import lines

import regard
from regard.attacks import HotFlip
from regard.cli.main import main
from regard.tasks.classify_text.options import ClassifyText
from regard.tasks.loading import load, load_run
from regard.tasks.shared import classification

TINY = shlex.split(
    "--width 5 --hidden 6 --hops 2 --feed 7 --batch 60 --threads 1 --warmup 1 --steps 2 --validate-every 2"
)


def _tab(rows: list[tuple[str, str]]) -> str:
    return "".join(f"{label}\t{text}\n" for label, text in rows)


FORMATS: dict[str, Callable[[list[tuple[str, str]]], str]] = {
    "a.txt": _tab,
    "b.txt": lambda rows: "".join(f"{label} {text}\n" for label, text in rows),
    "c.tsv": lambda rows: "id\ttext\tlabel\n" + "".join(f"7\t{text}\t{label}\n" for label, text in rows),
    "d.jsonl": lambda rows: "".join(json.dumps({"label": label, "text": text}) + "\n" for label, text in rows),
}
ROWS = [(label, text) for label, _, text in (line.partition("\t") for line in lines())]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps; tests read it and leave it as it is."""
    folder = tmp_path_factory.mktemp("classified")
    (folder / "texts.txt").write_text(_tab(ROWS))
    args = ["train", "classify-text", "--train", str(folder / "texts.txt"), *TINY, "--out", str(folder / "run")]
    assert main(args) == 0
    return folder / "run"


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_the_same_data(name: str, zipped: bool, run: Path, tmp_path: Path) -> None:
    content, path = FORMATS[name](ROWS).encode(), tmp_path / (name + ".gz" * zipped)
    path.write_bytes(gzip.compress(content) if zipped else content)
    assert main(["train", "classify-text", "--train", str(path), *TINY, "--out", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "texts.json").read_bytes() == (run / "texts.json").read_bytes()


def test_compare_under_an_attack(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    texts, out = tmp_path / "texts.txt", tmp_path / "out"
    texts.write_text(_tab(ROWS))
    args = ["compare", "classify-text", "--attention", "paper", "--train", str(texts), *TINY, "--attack", "hotflip"]
    assert main([*args, "--out", str(out)]) == 0
    told = json.loads((out / "results.json").read_text())
    bag = "bag-of-words"
    assert set(told) == {"paper", bag}
    predictor = load(out / "paper")
    examples = load_run(out / "paper").attack_examples(ClassifyText.Attack())
    wanted = regard.attack(predictor, *examples[:2], HotFlip(3, k=64, beam=5))
    assert told["paper"]["scores"]["hotflip, test"] == pytest.approx(wanted.accuracy)
    assert "hotflip, test" not in told[bag]["scores"]
    assert "regard: HotFlip compares vectors of tokens, and BagOfWords has no embedding" in capfd.readouterr().err


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_text_is_refused(text: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["predict", str(run), "It rained.", text]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"regard: a text of regard predict {run} is empty; give at least one word\n"


WRONG = {
    "an empty file": ("", "train.txt is empty"),
    "no text": ("good\nbad a\n", "train.txt:1: the text is empty, got 'good'; fill it in, or delete the line"),
    "no JSON": ('{"label": "a", "text": "b"}\n{"label"\n', "train.txt:2: a line must be one JSON object"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_a_file_is_one_sentence(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, sentence = WRONG[name]
    (tmp_path / "train.txt").write_text(content)
    capsys.readouterr()
    args = ["train", "classify-text", "--train", str(tmp_path / "train.txt"), *TINY, "--out", str(tmp_path / "run")]
    assert main(args) == 2
    printed = capsys.readouterr().err
    assert sentence in printed
    assert printed.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_case_and_marks_are_no_part_of_words(run: Path) -> None:
    outputs = load(run, device="cpu").predict(["a film that is great", "A FILM, that is: Great!"])
    assert [output.num_unknown for output in outputs] == [0, 3]  # no training text has , : !


def test_the_training_ends_with_the_baselines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, run = tmp_path / "texts.txt", tmp_path / "run"
    texts.write_text(_tab(ROWS))
    args = ["train", "classify-text", "--train", str(texts), "--valid", str(texts), *TINY]
    assert main([*args, "--tokens", "words", "--out", str(run)]) == 0
    said = capsys.readouterr().out
    assert "Baselines on the same data, accuracy: bag of words 100.00, naive Bayes " in said
    assert "The model does not beat the bag of words; try --embedding-std 0.05 --initial-embeddings log-ratios" in said
    kept = json.loads((run / "baselines.json").read_text())
    assert kept["metric"] == "accuracy"
    assert kept["scores"]["bag of words"] == 100.0
    # words as they are written are the model's; the baselines fold them
    assert json.loads((run / "tokens.json").read_text())["kind"] == "words"
    assert json.loads((run / "baseline-tokens.json").read_text())["kind"] == "folded-words"
    assert main(["evaluate", str(run)]) == 0
    assert "bag of words, the baseline: accuracy 100.00" in capsys.readouterr().out
    # a run whose classes are too many for a bag of words says so, goes on, and is resumed
    monkeypatch.setattr(classification, "_MAX_WEIGHTS", 1000)
    assert main([*args, "--out", str(tmp_path / "many")]) == 0
    assert main(["train", "--resume", str(tmp_path / "many"), "--steps", "4"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "the texts have 3 classes, too many for a bag of words as the baseline; if they should be fewer, name" in said
    )
    assert "accuracy: naive Bayes " in said
    assert main(["evaluate", str(tmp_path / "many")]) == 0
    assert "bag of words" not in capsys.readouterr().out
