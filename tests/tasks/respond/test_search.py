"""Replies of every model: searches, batches, recordings, and the turns that are read."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.for_each import for_each
from tests.tasks.laws import check_resume
from tests.tasks.respond.runs import INPUTS, MODELS, loaded, train

from regard.cli.main import main
from regard.decoding.search import Sampling, search_steps
from regard.inference.predictor import labelled_recording
from regard.tasks.respond.options import PredictReplies


@for_each("options", MODELS.values(), ids=MODELS)
def test_every_model(file: Path, tmp_path: Path, options: Sequence[str]) -> None:
    predictor = loaded(check_resume(lambda out, steps: train(file, options, out, steps), tmp_path))
    searches = [
        PredictReplies(),
        PredictReplies(beam=3, nbest=2),
        PredictReplies(sample=True, nbest=2, temperature=0.7, top_k=9, top_p=0.9, seed=3),
    ]
    for search in searches:
        together = predictor.predict(INPUTS, search)
        if not search.sample:
            # in another order; samples follow the numbers of the inputs
            others = predictor.predict(INPUTS[::-1], search)[::-1]
            assert [[each.tokens for each in output.hypotheses] for output in others] == [
                [each.tokens for each in output.hypotheses] for output in together
            ]
        for n, text in enumerate(INPUTS):
            (alone,) = predictor.predict([text], search, first=n)
            for one, other in zip(alone.hypotheses, together[n].hypotheses, strict=True):
                assert one.tokens == other.tokens
                assert one.log_prob == pytest.approx(other.log_prob, abs=1e-5)
    # the log p of a reply is that of one pass over it
    (reply,) = predictor.predict(INPUTS[:1])
    if reply.best.finished:
        nll = float(predictor.loss(INPUTS[:1], [reply.best.text]).detach())
        assert -nll == pytest.approx(reply.best.log_prob, abs=1e-4)
    for n, text in enumerate(INPUTS):
        output, recording = labelled_recording(predictor, text)
        copies = ["copied"] if "pointer-generator" in options else []
        assert recording.names == ("words", "turns", *copies)
        assert all(item.verified for item in recording)
        words, turns, *copied = (item.weights.dense()[0, 0] for item in recording)
        for rows_copied in copied:
            torch.testing.assert_close(rows_copied.sum(1), torch.ones(len(rows_copied)))
        rows, columns = recording.labels(recording[0])
        assert rows is not None
        assert columns is not None
        assert (len(rows), len(columns)) == words.shape
        # the same as the weights that the model gives by name
        attended = predictor.attended(output)
        torch.testing.assert_close(torch.cat([turn.weights for turn in attended], 1), words)
        ends = [k for k, label in enumerate(columns) if label.startswith("turn ")]
        sums = torch.stack([turn.weights.sum(1) for turn in attended if turn.pieces], 1)
        torch.testing.assert_close(turns[:, ends], sums)
        assert float(turns.sum(1).max()) <= 1 + 1e-5
        if not n:
            assert predictor.draw(recording, text, output, tmp_path / "x.png").stat().st_size > 100
    assert predictor.predict([]) == []


@pytest.mark.parametrize("name", ["flat", "flat, pointer", "hierarchical"])
def test_a_batch_of_replies_is_scored_as_each_alone(runs: dict[str, Path], name: str) -> None:
    predictor = loaded(runs[name])
    replies = predictor.reader.replies([("good", "bad film", "", "it was"), ("to",) * 5], "all")
    assert [(reply.dialogue, reply.turn) for reply in replies] == [(0, 1), (0, 3), (1, 1), (1, 2), (1, 3), (1, 4)]
    together = predictor.token_nlls(replies)
    for reply, nll in zip(replies, together, strict=True):
        (alone,) = predictor.token_nlls([reply])
        np.testing.assert_allclose(nll, alone, atol=1e-5)


def test_the_last_turns_and_tokens_are_read_and_notes_say_so(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(runs["flat"])
    long = "good\tbad\t" + " ".join(["it"] * 9) + "\tfilm\twas"
    capsys.readouterr()
    assert main(["predict", run, long, "unheard\tof", "--json"]) == 0
    printed = capsys.readouterr()
    first, second = map(json.loads, printed.out.splitlines())
    assert (first["dialogue"], first["dropped"], first["cut"]) == (long, 2, 1)
    assert (second["dropped"], second["cut"]) == (0, 0)
    assert "1 dialogue had more than the 3 turns that the model reads; only the last of them were read" in printed.err
    assert "1 turn had more than the 5 tokens that the model reads; only the last of them were read" in printed.err
    assert "2 tokens were not in the vocabulary, so the model could not read them" in printed.err
    assert main(["predict", run, " ".join(["it"] * 5) + "\tfilm\twas", "--json"]) == 0
    (alone,), (together,) = json.loads(capsys.readouterr().out)["replies"], first["replies"]
    assert alone["text"] == together["text"]
    assert alone["log_prob"] == pytest.approx(together["log_prob"], abs=1e-5)
    assert main(["predict", run, "it", "--nbest", "2", "--beam", "2"]) == 0
    assert re.match(r"1\t-\d+\.\d{4}\t.*\n2\t-", capsys.readouterr().out)
    # turns on lines of their own, as a page has them
    predictor = loaded(runs["flat"])
    assert predictor.reader.parse("a\nb\tc\n\n") == ("a", "b", "c")


def test_samples_have_steps_one_by_one() -> None:
    with pytest.raises(ValueError, match=r"^count=2 samples per line have no common steps; give count=1$"):
        search_steps(None, None, Sampling(2), torch.tensor([3]), [0])  # type: ignore[arg-type]
