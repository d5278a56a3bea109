"""Scores of replies: the baseline, fewer turns, and the values of bookings."""

import json
import math
import re
from pathlib import Path

import pytest
from tests.tasks.respond.runs import FLAT, STEPS

from regard.cli.main import main
from regard.data.embedded import bookings
from regard.data.text.special_tokens import EOS
from regard.data.text.tokenizer import Tokenizer
from regard.tasks.respond.data import DialogueReader, EncodedReply, EncodedTurns
from regard.tasks.respond.scoring import count_tokens, named_values, unigram_nll


def test_evaluate_prints_the_baseline_and_reads_fewer_turns(
    runs: dict[str, Path], file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(runs["hierarchical"])
    capsys.readouterr()
    found = {}
    for turns in (3, 1):
        assert main(["evaluate", run, "--turns", str(turns), "--json"]) == 0
        found[turns] = json.loads(capsys.readouterr().out)
        assert found[turns]["turns"] == turns
        scores = found[turns]["scores"]
        assert list(scores) == ["perplexity", "nll", "distinct-1", "distinct-2", "most common"]
        assert scores["perplexity"] == pytest.approx(math.exp(scores["nll"]))
    assert found[1]["scores"]["nll"] != found[3]["scores"]["nll"]
    assert main(["evaluate", run, "--beam", "2", "--test", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "a unigram model of the replies, the baseline: perplexity" in printed
    assert "at most 3 turns read" in printed
    assert "different n-grams of words / words in all" in printed
    assert "beam 2" in printed
    assert main(["evaluate", run, "--turns", "4"]) == 2
    assert "--turns 4 is more than the 3 that this run was trained with; try --turns 3" in capsys.readouterr().err
    path = tmp_path / "empty.tsv"
    path.write_text("a\t\t\t\tb\n")
    assert main(["evaluate", run, "--test", str(path)]) == 2
    assert f"{path} has no reply to score; give other dialogues, or more turns" in capsys.readouterr().err


def test_the_unigram_model_is_its_formula() -> None:
    history = EncodedTurns(((5, EOS),))
    replies = [EncodedReply(history, tokens, False, 0, 1) for tokens in ((4, 4, EOS), (6, EOS))]
    counts = count_tokens(replies, 8)
    assert counts == [0, 0, 2, 0, 2, 0, 1, 0]
    scored = [EncodedReply(history, (4, 7), True, 0, 1)]
    assert unigram_nll(counts, scored) == pytest.approx(-(math.log(3 / 13) + math.log(1 / 13)) / 2)


def test_values_are_counted_where_the_dialogue_determines_them() -> None:
    parts = bookings.splits(0)
    tokenizer = Tokenizer.train("bpe", [turn for each in parts.test for turn in each.turns], 600)
    dialogues = [each.turns for each in parts.test[:20]]
    replies = DialogueReader(tokenizer, 30, 60).replies(dialogues, "second")
    right = [dialogues[reply.dialogue][reply.turn] for reply in replies]
    found = named_values(dialogues, replies, right, 0)
    assert found.num_right == found.num_scored >= 20
    assert found.share == 100
    # a value is missing, another one is named
    assert named_values(dialogues, replies, [text.replace("people", "") for text in right], 0).share == 100
    assert named_values(dialogues, replies, [f"{text} thai italian" for text in right], 0).share < 20
    assert named_values(dialogues, replies, [""] * len(right), 0).share == 0
    assert named_values([("a", "b")], [], [], 0).num_scored == 0


def test_bookings_are_evaluated_by_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = bookings.splits
    monkeypatch.setattr(bookings, "splits", lambda seed, train=12: whole(seed, train=12, valid=3, test=4))
    options = [*FLAT, "--vocabulary", "300", "--batch", "900", "--threads", "1", "--device", "cpu", *STEPS]
    assert main(["train", "respond", *options, "--steps", "1", "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"values: 0 of \d+ replies name all values of the state that the right one names", printed)
    (tmp_path / "other.tsv").write_text("hello\tgood day\n")
    assert main(["evaluate", str(tmp_path / "run"), "--test", str(tmp_path / "other.tsv")]) == 0
    assert "values" not in capsys.readouterr().out
