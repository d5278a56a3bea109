"""The text of a run, the plan of its batches, and the commands."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tasks.running_text import STEPS, TEXT, train_on_text

import regard
from regard.cli.main import main
from regard.data.text.special_tokens import UNK
from regard.tasks.language_model.data import load_segments, plan_segments
from regard.tasks.language_model.options import EvaluateLanguageModel, LanguageModelConfig
from regard.tasks.shared.running_text import RunningTextFacts, contents, evaluation_documents, read


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_on_text("language-model", tmp_path_factory.mktemp("text"))


@pytest.mark.parametrize(("length", "rows", "segment"), [(100, 3, 7), (101, 5, 20), (15, 4, 7), (8, 3, 7)])
@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_rows_of_successive_batches_are_contiguous_text(length: int, rows: int, segment: int, epoch: int) -> None:
    stream = np.arange(length, dtype=np.int32)
    planned = plan_segments(length, rows, segment, 0, epoch, contiguous=True)
    batches = [load_segments(stream, each, segment, 0, 1) for each in planned]
    assert [each.is_first for each in planned] == [n == 0 for n in range(len(planned))]
    joined = torch.cat([batch.tokens[:, :-1] for batch in batches if batch is not None], 1)
    assert (joined.diff() == 1).all()
    targets = [token for batch in batches if batch is not None for token in batch.tokens[:, 1:].flatten().tolist()]
    assert len(set(targets)) == len(targets)
    assert max(targets) < length
    # no more is left out than a row of segments
    assert len(targets) > length - 1 - segment * (len(planned[0].starts) + 1)


@pytest.mark.parametrize(("length", "rows", "segment"), [(500, 16, 16), (250, 8, 16), (1000, 16, 16), (29, 1, 10)])
def test_rows_with_a_memory_read_all_of_a_short_text(length: int, rows: int, segment: int) -> None:
    count = np.zeros(length, np.int64)
    for epoch in range(50):
        for each in plan_segments(length, rows, segment, 0, epoch, contiguous=True):
            for start in each.starts:
                count[start + 1 : start + 1 + segment] += 1
    assert (count[1:] > 0).all(), f"tokens {np.flatnonzero(count[1:] == 0) + 1} are in no epoch"


def test_windows_without_a_memory_are_shuffled_and_disjoint() -> None:
    stream = np.arange(1000, dtype=np.int32)
    plans = [plan_segments(1000, 4, 11, 0, epoch, contiguous=False) for epoch in range(2)]
    starts = [np.concatenate([each.starts for each in plan]) for plan in plans]
    assert all(len(set(each.tolist())) == len(each) for each in starts)
    assert set((starts[0] % 11).tolist()) != set((starts[1] % 11).tolist())
    assert not (np.diff(starts[0]) == 11).all()
    assert load_segments(stream, plans[0][0], 11, 5, 6) is None
    halves = [load_segments(stream, plans[0][0], 11, rank, 2) for rank in range(2)]
    assert [half is not None and half.tokens[:, 0].tolist() for half in halves] == [
        plans[0][0].starts[0::2].tolist(),
        plans[0][0].starts[1::2].tolist(),
    ]


def test_evaluate_states_window_and_stride(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "loss.png"
    capsys.readouterr()
    command = ["evaluate", str(run), "--window", "12", "--stride", "5", "--picture", str(picture)]
    assert main(command) == 0
    assert "window 12, stride 5; each token is scored once" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main(["evaluate", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["window"], found["stride"], len(found["loss_by_context"])) == (16, 8, 16)
    assert found["tokens"] == found["characters"] == round(0.1 * len(TEXT))


def test_characters_that_were_never_seen_are_counted(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    other = tmp_path / "other.txt"
    other.write_text("the ÅÅ cat\n")
    assert main(["evaluate", str(run), "--test", str(other)]) == 0
    assert "2 of the tokens are not in the vocabulary, and scored as the unknown token" in capsys.readouterr().out
    predictor = regard.load(run, device="cpu")
    assert predictor.tokenizer.encode_text("Å") == [UNK]  # type: ignore[attr-defined]


def test_generate_prints_the_prompt_and_what_predict_gives(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--tokens", "40", "--top-k", "9", "--seed", "3"]
    prompt = "the cat\nsat "
    capsys.readouterr()
    assert main(["generate", str(run), prompt, *options]) == 0
    streamed = capsys.readouterr()
    assert "1 text grew past the 16 tokens that the model reads at once" in streamed.err
    assert main(["generate", str(run), prompt, *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert streamed.out == f"{prompt}{found['texts'][0]['text']}\n"
    assert main(["generate", str(run), prompt, "x", *options, "--count", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].split("\t")[0] == streamed.out[:-1].replace("\n", "\\n")
    assert main(["generate", str(run), "", "--tokens", "3"]) == 0
    assert len(capsys.readouterr().out) <= 4


def test_bad_input_is_one_sentence(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, empty = run.with_name("text.txt"), tmp_path / "empty.txt"
    empty.write_text("")
    train = ["train", "language-model", *STEPS, "--out", str(tmp_path / "out")]
    cases = [
        ([*train, "--train", str(empty)], "empty.txt is empty; it must hold running text"),
        ([*train, "--train", str(text), "--segment", "9999"], "--segment 9999 tokens are more than the"),
        ([*train, "--train", str(text), "--vocabulary", "9"], "characters and 4 special numbers, got 9"),
        ([*train, "--train", str(text), "--tokens", "words"], "unknown --tokens 'words'; known are"),
        (["evaluate", str(run), "--window", "17"], "--window 17 exceeds the context of 16 tokens"),
        (
            ["evaluate", str(run), "--window", "4", "--stride", "5"],
            "--stride 5 exceeds --window 4, so tokens would be left out",
        ),
        (["evaluate", str(run), "--stride", "17"], "--stride 17 exceeds the window of 16 tokens"),
        (["evaluate", str(run), "--memory", "5"], "--memory 5 is for models with a memory"),
        (["translate", str(run), "a"], "is a run of language-model, and regard translate is for runs of translate"),
    ]
    capsys.readouterr()
    for command, sentence in cases:
        assert main(command) == 2, command
        printed = capsys.readouterr()
        assert sentence in printed.err, printed.err
        assert printed.err.count("\n") == 1, printed.err
        assert printed.out == ""
        assert not (tmp_path / "out").exists()


def test_changed_text_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(train_on_text("language-model", tmp_path))
    (tmp_path / "text.txt").write_text(TEXT + "more\n")
    assert main(["train", "--resume", out, "--steps", "3"]) == 2
    assert "the train data of" in capsys.readouterr().err
    assert main(["evaluate", out]) == 2
    assert "and the end that is held out now may have been trained on; put the files back" in capsys.readouterr().err


def test_another_manual_is_noticed(tmp_path: Path) -> None:
    config = LanguageModelConfig.of(data="manual")
    RunningTextFacts(train=1, valid=1, train_sha256="", valid_sha256="").write(tmp_path)
    message = f"the text of manual is another one than {tmp_path} was trained on, as another version of Python has "
    with pytest.raises(ValueError, match=message + "another manual; give a text that it has not learned from by"):
        evaluation_documents(config, tmp_path, EvaluateLanguageModel())


@pytest.mark.parametrize("tokens", ["bytes", "bpe"])
def test_kinds_of_tokens(tokens: str, tmp_path: Path) -> None:
    more = ["--tokens", tokens, "--vocabulary", "270", "--model", "gpt2", "--positions", "rotary"]
    out = train_on_text("language-model", tmp_path, *more)
    predictor = regard.load(out, device="cpu")
    assert len(predictor.tokenizer) == {"bytes": 260, "bpe": 270}[tokens]  # type: ignore[attr-defined]
    assert predictor.loss(["the "], ["dog"]).shape == (1,)
    with pytest.raises(ValueError, match=r"a prompt and its target have \d+ tokens, and this model reads \d+; shorten"):
        predictor.loss(["the "], ["dog " * 400])


def test_embedded_text_has_no_test_part_and_its_name_says_so(tmp_path: Path) -> None:
    config = LanguageModelConfig.of()
    RunningTextFacts.of(read(config)).write(tmp_path)
    for part, rest in (("valid", ""), ("test", ", which has no test lines")):
        split = evaluation_documents(config, tmp_path, EvaluateLanguageModel(split=part))
        assert split.name == f"the validation lines of manual{rest}"
        assert split.data == read(config).valid


def test_short_lines_are_compared_with_those_behind_them() -> None:
    verses = [f"and verse {n}" for n in range(60)]
    poem, excerpt = "\n".join(verses), "\n\n".join(verses[20:40])
    known = set(contents([poem]))
    assert len(known) > 50
    assert set(contents([excerpt])) < known
    assert len([*contents([excerpt])]) > 10
    # single short lines, and a short text, recur by chance
    assert not set(contents(["\n".join(verses[::2])])) & known
    assert not [*contents(["and verse 1\nand verse 2"])]
    line = "a line that is long enough to be known alone"
    assert [*contents([f"x\n\n{line}\n"])] == [line]
