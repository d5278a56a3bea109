"""tag with a pretrained encoder: words and their sub-words, intents, limits, and a run without its folder."""

from pathlib import Path
from typing import Any

import pytest
from tests.tasks.cases import write_files
from tests.tasks.encoders import bert_folder, masked_lm_run

import regard as library
from regard.cli.main import main
from regard.inference.predictor import labelled_recording

STEPS = ["--threads", "1", "--device", "cpu", "--warmup", "1", "--batch", "64", "--log-every", "1"]
TEXTS = ["a trip to B C", "to D", "", "trips, to B-C"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data")
    write_files(path)
    sentences = path / "snips"
    sentences.mkdir()
    (sentences / "seq.in").write_text("".join(f"play {letter} film\ntrip to {letter}\n" for letter in "abcdefgh"))
    (sentences / "seq.out").write_text("O O B-film\nO O B-place\n" * 8)
    (sentences / "label").write_text("play\ntrip\n" * 8)
    return path


def command(train: Path, out: Path, encoder: Path, steps: int, *options: str) -> list[str]:
    given = ["--train", str(train), "--encoder", str(encoder)]
    return ["train", "tag", *given, *STEPS, *options, "--steps", str(steps), "--out", str(out)]


@pytest.mark.parametrize("output", ["crf", "softmax"])
def test_sentences_with_intents_alone_and_in_a_batch(output: str, folder: Path, tmp_path: Path) -> None:
    source = masked_lm_run(tmp_path / "mlm")
    assert main(command(folder / "snips", tmp_path / "run", source, 2, "--output", output)) == 0
    predictor: Any = library.load(tmp_path / "run", device="cpu")
    together = predictor.predict(TEXTS)
    for text, found in zip(TEXTS, together, strict=True):
        (alone,) = predictor.predict([text])
        assert found.tags == alone.tags
        assert found.probabilities == pytest.approx(alone.probabilities, abs=1e-5)
        assert alone.intent[1] == pytest.approx(found.intent[1], abs=1e-5)
    assert [len(found.words) for found in together] == [5, 2, 0, 3]


def test_recorded_heads_have_word_pieces(folder: Path, tmp_path: Path) -> None:
    assert main(command(folder / "columns.tsv", tmp_path / "run", folder / "bert", 1)) == 0
    predictor: Any = library.load(tmp_path / "run", device="cpu")
    _, recording = labelled_recording(predictor, "trips to")
    assert recording.keys == ("[CLS]", "trip", "##s", "to", "[SEP]")
    assert [row.split()[0] for row in recording.queries] == ["[CLS]", "trips", "##s", "to", "[SEP]"]
    assert len(recording) == 2
    assert main(["predict", str(tmp_path / "run"), "trips to", "--picture", str(tmp_path / "picture.png")]) == 0


def test_sentences_longer_than_the_encoder_are_errors(folder: Path, tmp_path: Path, capsys: Any) -> None:
    encoder = bert_folder(tmp_path / "short", longest=8)
    assert main(command(folder / "columns.tsv", tmp_path / "run", encoder, 1)) == 0
    long = tmp_path / "long.tsv"
    long.write_text("a\tO\nb\tB-PLACE\n\n" * 9 + "tripping\tO\nxyz\tO\nB\tB-PLACE\n")
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), "it was a film xyz"]) == 2
    assert (
        "the text 'it was a film xyz…' has 9 tokens of the encoder, which reads 8; split it" in capsys.readouterr().err
    )
    assert main(["evaluate", str(tmp_path / "run"), "--test", str(long)]) == 2
    assert "long.tsv:28: the sentence has 9 tokens of the encoder, which reads 8" in capsys.readouterr().err
    assert main(command(long, tmp_path / "other", encoder, 1)) == 2
    assert "long.tsv:28: the sentence has 9 tokens of the encoder" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
