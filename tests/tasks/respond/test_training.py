"""The replies that a training learns: whole dialogues, stages, fewer turns."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tasks.respond.runs import FLAT, SMALL, STEPS, WORDS, loaded

from regard.cli.main import main
from regard.data.text.tokenizer import Tokenizer
from regard.tasks.respond.data import DialogueReader, PlannedReplies, first_reply
from regard.tasks.respond.options import Respond
from regard.tasks.respond.predictor import RespondPredictor

OPTIONS = {"tokens": "words", "words": 5, "width": 8, "heads": 2, "layers": 1}


def test_training_says_what_is_cut(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "long.tsv"
    path.write_text(file.read_text() + "a\t" + " ".join("bcdefgh") + "\tc\n")
    options = ["--valid", str(file), *FLAT, *SMALL, *STEPS, "--steps", "1"]
    assert main(["train", "respond", "--train", str(path), *options, "--out", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr()
    assert (
        "1 reply to train on and 1 turn before replies have more than words=5 tokens: of replies the first are "
        "learned, of turns the last are read; give a larger --words to use all"
    ) in " ".join((printed.out + printed.err).split())
    assert main(["evaluate", str(tmp_path / "run"), "--test", str(path)]) == 0
    assert "of 1 reply the first 5 tokens are scored, and no end" in capsys.readouterr().out


def test_replies_of_the_second_speaker_and_speakers() -> None:
    tokenizer = Tokenizer.train("words", ["a b c d"], 20)
    reader = DialogueReader(tokenizer, 2, 3)
    dialogue = ("a", "b", "c", "d", "a")
    assert [reply.turn for reply in reader.replies([dialogue], "second")] == [1, 3]
    last = reader.replies([dialogue], "all")[-1]
    assert [tokenizer.decode(turn) for turn in last.history.turns] == ["c", "d"]
    assert last.history.speakers == [0, 1]
    assert last.history.num_dropped == 2
    (alone,) = (reply for reply in reader.replies([dialogue], "all", turns=1) if reply.turn == 4)
    assert [tokenizer.decode(turn) for turn in alone.history.turns] == ["d"]


def test_dialogues_are_learned_whole_where_every_reply_is_read_with_all_turns_before_it(
    file: Path, tmp_path: Path
) -> None:
    """The loss of an epoch is then that of all replies, one by one."""
    path = tmp_path / "whole.tsv"
    path.write_text("".join(f"{a}\t{b} {a}\t{b}\tit {a}\tto\n" for a in WORDS for b in WORDS))
    options: dict[str, Any] = {**OPTIONS, "replies": "second", "dropout": 0.0}
    whole, single = (Respond.of(train=path, valid=path, turns=turns, **options) for turns in (4, 3))
    problems = [task.prepare(tmp_path / f"{task.turns}") for task in (whole, single)]
    assert [problem.learns_dialogues for problem in problems] == [True, True]
    cut = Respond.of(train=path, valid=path, turns=2, **options).prepare(tmp_path / "cut")
    assert not cut.learns_dialogues
    assert not Respond.of(train=file, valid=file, turns=4, **options).prepare(tmp_path / "empty").learns_dialogues
    every = Respond.of(train=path, valid=path, **{**options, "replies": "all"})
    assert not every.prepare(tmp_path / "a").learns_dialogues
    problem = problems[0]
    torch.manual_seed(0)
    model = problem.build_model().eval()
    batches = [problem.load_batch(planned, 0, 1) for planned in problem.plan_epoch(0)]
    losses = [problem.loss(model, batch) for batch in batches]
    replies = problem.reader.replies([tuple(line.split("\t")) for line in path.read_text().splitlines()], "second")
    nlls = RespondPredictor(model, problem.reader).token_nlls(replies)
    assert sum(loss.count for loss in losses) == sum(map(len, nlls))
    total = sum(float(loss.total.detach()) for loss in losses)
    assert total == pytest.approx(sum(float(nll.sum()) for nll in nlls), rel=1e-5)


def test_a_bidirectional_model_learns_replies_behind_a_turn_that_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "whole.tsv"
    path.write_text("".join(f"{a}\t{b} {a}\t{b}\tit {a}\n" for a in WORDS for b in WORDS))
    options: dict[str, Any] = {**OPTIONS, "replies": "second", "dropout": 0.0, "history": "bidirectional"}
    task = Respond.of(train=path, valid=path, turns=3, init_std=0.5, **options)
    problem = task.prepare(tmp_path / "run")
    assert problem.learns_dialogues
    planned = problem.plan_epoch(0)
    assert [(each.rows.tolist(), each.draws.tolist()) for each in planned] == [
        (each.rows.tolist(), each.draws.tolist()) for each in problem.plan_epoch(0)
    ]
    firsts = {first_reply(problem.replies[0], draw) for each in planned for draw in each.draws}
    assert firsts == {1, 3}
    torch.manual_seed(0)
    model = problem.build_model().eval()
    replies = problem.reader.replies([tuple(line.split("\t")) for line in path.read_text().splitlines()], "second")
    nlls = RespondPredictor(model, problem.reader).token_nlls(replies)
    # with the greatest draws the last replies alone, as they are written; with the least ones the first ones, too
    for draw, turns in ((0.99, (3,)), (0.0, (1, 3))):
        plans = [PlannedReplies(each.rows, np.full(len(each.rows), draw), each.turns) for each in planned]
        losses = [problem.loss(model, problem.load_batch(each, 0, 1)) for each in plans]
        right = [nll for reply, nll in zip(replies, nlls, strict=True) if reply.turn in turns]
        assert sum(loss.count for loss in losses) == sum(map(len, right))
        total = sum(float(loss.total.detach()) for loss in losses)
        if draw:
            assert total == pytest.approx(sum(float(nll.sum()) for nll in right), rel=1e-5)


def test_the_history_of_a_staged_training_grows(file: Path, tmp_path: Path) -> None:
    """From one turn to all; every epoch has the same replies in every batch as without stages."""
    options: dict[str, Any] = {**OPTIONS, "turns": 5, "batch": 64, "replies": "all"}
    staged, whole = (Respond.of(train=file, **options, staged_epochs=n) for n in (3, 0))
    assert [staged.turns_in(epoch) for epoch in range(5)] == [1, 2, 3, 5, 5]
    assert [whole.turns_in(epoch) for epoch in range(2)] == [5, 5]
    problems = [task.load().prepare(tmp_path / str(n), new=True) for n, task in enumerate((staged, whole))]
    for epoch in (0, 1, 3):
        for planned, usual in zip(*(problem.plan_epoch(epoch) for problem in problems), strict=True):
            assert planned.rows.tolist() == usual.rows.tolist()
            batch, other = (p.load_batch(each, 0, 1) for p, each in zip(problems, (planned, usual), strict=True))
            assert torch.equal(batch.target, other.target)
            most = staged.turns_in(epoch)
            count = min(other.history.lengths.shape[1], most)
            # of replies whose last turns have no words all turns are read
            is_short = (other.history.lengths[:, -count:] > 0).any(1)
            kept = batch.history.lengths[is_short]
            assert not kept[:, :-count].any()
            assert torch.equal(kept[:, -count:], other.history.lengths[is_short, -count:])


def test_fewer_turns_are_read_before_some_replies(file: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {**OPTIONS, "turns": 3, "batch": 64, "replies": "all"}
    task, whole = (Respond.of(train=file, **options, history_dropout=share) for share in (0.4, 0.0))
    assert [task.turns_kept(3, draw) for draw in (0.0, 0.19, 0.2, 0.39, 0.4, 0.99)] == [1, 1, 2, 2, 3, 3]
    assert [task.turns_kept(1, draw) for draw in (0.0, 0.39, 0.99)] == [1, 1, 1]
    assert whole.turns_kept(3, 0.0) == 3
    problem, usual = (each.load().prepare(tmp_path / str(n), new=True) for n, each in enumerate((task, whole)))
    draws = set()
    for epoch in (0, 1):
        for planned, other in zip(problem.plan_epoch(epoch), usual.plan_epoch(epoch), strict=True):
            batch, full = problem.load_batch(planned, 0, 1), usual.load_batch(other, 0, 1)
            kept = torch.tensor([task.turns_kept(3, draw) for draw in planned.draws.tolist()])
            most = full.history.lengths.shape[1]
            is_kept = torch.arange(most, 0, -1) <= kept.unsqueeze(-1)
            has_words = (full.history.lengths * is_kept).any(1)
            expected = (full.history.lengths * is_kept)[has_words].sum(1)
            assert torch.equal(batch.history.lengths[has_words].sum(1), expected)
            draws.add(tuple(planned.draws.tolist()))
    # drawn anew in every epoch, and the same again
    assert len(draws) == len(problem.plan_epoch(0)) + len(problem.plan_epoch(1))
    again = [planned.draws.tolist() for planned in problem.plan_epoch(1)]
    assert again == [planned.draws.tolist() for planned in problem.plan_epoch(1)]


def test_a_run_continues_one_that_read_fewer_turns(file: Path, tmp_path: Path) -> None:
    short, long = tmp_path / "short", tmp_path / "long"
    copies = [*FLAT, "--output", "pointer-generator", "--tokens", "words", "--words", "5", "--batch", "64"]
    options = [*copies, "--threads", "1", *STEPS, "--steps", "1", "--train", str(file)]
    assert main(["train", "respond", *options, "--turns", "1", "--out", str(short)]) == 0
    assert main(["train", "respond", *options, "--turns", "3", "--init-from", str(short), "--out", str(long)]) == 0
    assert loaded(long).reader.turns == 3
