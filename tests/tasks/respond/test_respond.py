"""The task respond: models, baselines, values of bookings, truncation, maps over words and turns, and errors."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from regard.cli.main import main
from regard.data.embedded import bookings
from regard.data.text.special_tokens import EOS
from regard.data.text.tokenizer import Tokenizer
from regard.decoding.protocol import Step
from regard.decoding.search import Sampling, search_steps
from regard.inference.limits import Limits
from regard.inference.predictor import labelled_recording
from regard.models.responding.responder import History, Responder
from regard.serve.errors import RequestError
from regard.tasks.respond.baseline import count_tokens, unigram_nll
from regard.tasks.respond.data import DialogueReader, EncodedReply, EncodedTurns, PlannedReplies, first_reply
from regard.tasks.respond.options import EvaluateReplies, PredictReplies, Respond
from regard.tasks.respond.predictor import RespondPredictor
from regard.tasks.respond.scoring import named_values
from regard.training.checkpoint import read as read_checkpoint

WORDS = ["good", "bad", "film", "trip", "it", "was", "to"]
SMALL = ["--tokens", "words", "--turns", "3", "--words", "5", "--batch", "64", "--threads", "1", "--device", "cpu"]
STEPS = ["--warmup", "1", "--validate-every", "2"]
FLAT = ["--width", "8", "--heads", "2", "--layers", "2"]
HIERARCHICAL = ["--model", "hierarchical", "--width", "6", "--hidden", "8"]
MODELS = {
    "flat": FLAT,
    "flat, learned, entmax": [*FLAT, "--positions", "learned", "--attention", "entmax"],
    "hierarchical": HIERARCHICAL,
    "hierarchical, lstm, heads": [*HIERARCHICAL, "--cell", "lstm", "--attention", "multi-head"],
}
INPUTS = ["good film\tit\tbad trip was to it good", "it\t\tto", "was\t\t\tgood\tbad"]


class Spelling(Responder):
    """Writes these tokens, whatever was said; the state of a hypothesis is the number of its tokens."""

    def __init__(self, vocabulary: int, tokens: Sequence[int]) -> None:
        super().__init__()
        self.vocabulary, self.spelt = vocabulary, tokens
        self.register_parameter("unused", torch.nn.Parameter(torch.zeros(1)))

    def teacher_force(self, *arguments: Any) -> Any:
        raise NotImplementedError

    def init_state(self, history: History) -> int:
        return 0

    def step(self, tokens: Tensor, state: Any) -> Step:
        wanted = torch.tensor(self.spelt[state])
        return Step(torch.nn.functional.one_hot(wanted, self.vocabulary).double().expand(*tokens.shape, -1), state + 1)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dialogues") / "dialogues.tsv"
    lines = [f"{a} {b}\t{'' if n % 5 == 0 else b}\t{b} {a} {n}\t{n}" for n, a in enumerate(WORDS) for b in WORDS]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def train(file: Path, options: Sequence[str], out: Path, steps: int) -> None:
    given = ["--train", str(file), *options, *SMALL, *STEPS]
    assert main(["train", "respond", *given, "--steps", str(steps), "--out", str(out)]) == 0


@pytest.fixture(scope="module")
def runs(file: Path) -> dict[str, Path]:
    for name in ("flat", "hierarchical"):
        train(file, MODELS[name], file.parent / name, 2)
    return {name: file.parent / name for name in ("flat", "hierarchical")}


def loaded(run: Path) -> RespondPredictor:
    predictor = regard.load(run, device="cpu")
    assert isinstance(predictor, RespondPredictor)
    return predictor


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_every_model(file: Path, tmp_path: Path, options: Sequence[str]) -> None:
    train(file, options, tmp_path / "once", 2)
    train(file, options, tmp_path / "twice", 1)
    assert main(["train", "--resume", str(tmp_path / "twice"), "--steps", "2"]) == 0
    once, twice = (read_checkpoint(tmp_path / name / "last.safetensors").tensors for name in ("once", "twice"))
    assert all(torch.equal(once[key], twice[key]) for key in once)
    predictor = loaded(tmp_path / "once")
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
        assert recording.names == ("words", "turns")
        assert all(item.verified for item in recording)
        words, turns = (item.weights.dense()[0, 0] for item in recording)
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


@pytest.mark.parametrize("name", ["flat", "hierarchical"])
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
    assert "n-grams of words in all" in printed
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
    options = {"tokens": "words", "replies": "second", "width": 8, "heads": 2, "layers": 1, "words": 5, "dropout": 0.0}
    whole, single = (Respond.of(train=path, valid=path, turns=turns, **options) for turns in (4, 3))
    problems = [task.prepare(tmp_path / f"{task.turns}") for task in (whole, single)]
    assert [problem.learns_dialogues for problem in problems] == [True, True]
    cut = Respond.of(train=path, valid=path, turns=2, **options).prepare(tmp_path / "cut")
    assert not cut.learns_dialogues
    assert not Respond.of(train=file, valid=file, turns=4, **options).prepare(tmp_path / "empty").learns_dialogues
    assert (
        not Respond.of(train=path, valid=path, **{**options, "replies": "all"}).prepare(tmp_path / "a").learns_dialogues
    )
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
    options = {"tokens": "words", "replies": "second", "width": 8, "heads": 2, "layers": 1, "words": 5, "dropout": 0.0}
    task = Respond.of(train=path, valid=path, turns=3, history="bidirectional", init_std=0.5, **options)
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
        losses = [
            problem.loss(
                model, problem.load_batch(PlannedReplies(each.rows, np.full(len(each.rows), draw), each.turns), 0, 1)
            )
            for each in planned
        ]
        right = [nll for reply, nll in zip(replies, nlls, strict=True) if reply.turn in turns]
        assert sum(loss.count for loss in losses) == sum(map(len, right))
        total = sum(float(loss.total.detach()) for loss in losses)
        if draw:
            assert total == pytest.approx(sum(float(nll.sum()) for nll in right), rel=1e-5)


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


SENTENCES = {
    "": "a dialogue must be its turns so far, separated by tabs, got ''; give one turn with words at least",
    " \t ": r"a dialogue must be its turns so far, separated by tabs, got ' \\t '; give one turn with words at least",
}


@pytest.mark.parametrize("text", SENTENCES)
def test_a_dialogue_without_words_is_one_sentence(
    runs: dict[str, Path], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["predict", str(runs["flat"]), "good", text]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"regard: {SENTENCES[text]}\n".replace("\\\\", "\\")


def test_wrong_files_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "dialogues.tsv", tmp_path / "run"
    cases = {
        "no tabs\nhere\n": f"{path}:1: a line must have one dialogue per line, its turns separated by tabs or by "
        "__eou__, got 'no tabs'; put tabs between turns",
        "a\t\n\tb\n": f"{path} has no dialogue of two turns or more; it must hold one dialogue per line, its turns "
        "separated by tabs or by __eou__",
        "a\tb\n": f"--train {path} has 1 different dialogue, too few to hold some out; give more, or --valid as well",
        "a\tb\na\tc\n": f"--train {path} has 2 different dialogues, too few to hold some out; give more, or --valid as "
        "well",
        "".join(f"{n}\t\t\t\tb\n" for n in range(9)): "train has no reply with words in the --turns 3 before it, so "
        "there is nothing to learn; give more turns, or other dialogues",
    }
    for content, sentence in cases.items():
        path.write_text(content)
        capsys.readouterr()
        assert main(["train", "respond", "--train", str(path), *FLAT, *SMALL, "--out", str(out)]) == 2
        printed = capsys.readouterr()
        # no end of a training that does not begin
        assert printed.out == ""
        assert printed.err.splitlines()[-1] == f"regard: {sentence}"
        assert not [*out.glob("*.safetensors"), *out.glob("tokens.json"), *out.glob("dialogues.json")]


def test_the_learning_rate_is_that_of_the_data_unless_a_decoder_is_trained_further() -> None:
    bookings_rate, rate = (Respond.training_defaults(None, data)["lr"] for data in ("bookings", "files"))
    assert bookings_rate == 4e-3 != rate == Respond.training["lr"]
    decoder = Respond.of(decoder="folder").model
    assert Respond.training_defaults(decoder, "bookings")["lr"] == decoder.training["lr"] == 1e-4


def test_options() -> None:
    assert Respond.of(model="hierarchical").longest == 13 * 49
    assert PredictReplies().search == PredictReplies(beam=1).search
    with pytest.raises(ValueError, match="init_std must be above 0 and finite, got 0.0; try init_std=0.02"):
        Respond.of(init_std=0.0)
    wide, narrow = (Respond.of(init_std=std, dropout=0.0).model.build(300, 50) for std in (0.125, 0.02))
    assert 5 < wide.embedding.weight.std() / narrow.embedding.weight.std() < 7.5
    with pytest.raises(ValueError, match="--nbest 2 exceeds --beam 1; raise --beam"):
        PredictReplies(nbest=2)
    with pytest.raises(ValueError, match="--beam 2 means nothing with --sample; leave one of them out"):
        PredictReplies(beam=2, sample=True)
    with pytest.raises(ValueError, match="--top-k 2 means nothing without --sample; add --sample or leave it out"):
        PredictReplies(top_k=2)
    with pytest.raises(ValueError, match="--turns must be 1 or more, got 0"):
        EvaluateReplies(turns=0)


@pytest.mark.parametrize("name", ["flat", "hierarchical"])
def test_a_conversation_has_the_reply_and_the_words_behind_it(runs: dict[str, Path], name: str) -> None:
    predictor = loaded(runs[name])
    turns = ["good film", "it", "bad trip", "", "was it to bad good film trip"]
    answer = predictor.chat(turns, PredictReplies(beam=2))
    (output,) = predictor.predict(["\t".join(turns)], PredictReplies(beam=2))
    assert answer.text == output.best.text
    # three turns are read, and of each the last five words
    assert [[word for word, _ in turn] for turn in answer.attended] == [
        [],
        [],
        ["bad", "trip"],
        [],
        ["to", "bad", "good", "film", "trip"],
    ]
    expected = [float(turn.weights[:, :-1].mean(0).sum()) for turn in predictor.attended(output)]
    assert [sum(weight for _, weight in turn) for turn in answer.attended[2:]] == pytest.approx(expected, abs=1e-6)
    assert 0 < sum(expected) <= 1
    assert answer.notes == (
        "left out: the first 2 turns of the conversation; the model reads 3",
        "of 1 turn only the last 5 tokens are read",
    )
    assert predictor.chat(["it"]).notes == ()


def test_samples_of_a_conversation_go_by_its_turns(runs: dict[str, Path]) -> None:
    predictor, sampling = loaded(runs["flat"]), PredictReplies(sample=True, temperature=9.0, seed=2)
    replies = [predictor.chat(["it"], sampling, first=n).text for n in range(6)]
    assert replies == [predictor.chat(["it"], sampling, first=n).text for n in range(6)]
    assert len(set(replies)) > 1


def test_it_is_served_as_a_conversation(runs: dict[str, Path]) -> None:
    predictor = loaded(runs["flat"])
    endpoint = predictor.endpoint(Limits(), run="tiny", step=2)
    assert (endpoint.page.form, endpoint.page.title) == ("chat_form", "Talk with tiny")
    body = endpoint.schema.request(text="good film\tit\tbad", attention=True)
    (answer,) = endpoint.answer([endpoint.read(body)])[0]["answers"]  # type: ignore[misc]
    assert answer["chat"]["reply"] == answer["replies"][0]["text"] == predictor.chat(["good film", "it", "bad"]).text
    assert [len(turn) for turn in answer["chat"]["attended"]] == [2, 1, 1]


@pytest.mark.parametrize("name", ["flat", "hierarchical"])
def test_a_streamed_reply_is_the_whole_one(name: str, runs: dict[str, Path]) -> None:
    predictor = regard.load(str(runs[name]), device="cpu")
    assert isinstance(predictor, RespondPredictor)
    searches = [PredictReplies(), PredictReplies(beam=2), PredictReplies(sample=True, temperature=9.0, seed=3)]
    counts = []
    for options in searches:
        for first, dialogue in enumerate(INPUTS):
            *pieces, output = predictor.stream(dialogue, options, first=first)
            (whole,) = predictor.predict([dialogue], options, first=first)
            assert "".join(pieces) == whole.best.text  # type: ignore[arg-type]
            assert output == whole
            counts.append(len(pieces))
    assert max(counts) > 1
    heard: list[str] = []
    answer = predictor.chat(["good film", "it", "bad"], emit=heard.append)
    assert answer == predictor.chat(["good film", "it", "bad"])
    assert "".join(heard) == answer.text


def test_half_a_character_is_held_back(tmp_path: Path) -> None:
    """Tokens of bytes: é comes in two of them."""
    tokenizer = Tokenizer.train("bpe", ["x"], 260)
    (ids,) = tokenizer.encode(["né"])
    reader = DialogueReader(tokenizer, turns=1, words=9)
    model = Spelling(len(tokenizer), [*ids, EOS])
    *pieces, _ = RespondPredictor(model, reader).stream("x")
    assert pieces == ["n", "é"]


def test_a_service_streams_the_answer_that_it_gives(runs: dict[str, Path]) -> None:
    predictor = regard.load(str(runs["flat"]), device="cpu")
    endpoint = predictor.endpoint(Limits(), run="tiny", step=2)
    body = {"text": "good film\tit\tbad", "attention": True, "temperature": 0.8, "seed": 5}
    whole = endpoint.answer([endpoint.read(endpoint.schema.request(**body))])[0]
    *pieces, last = endpoint.stream(endpoint.read(endpoint.schema.request(**body, stream=True)))
    assert last == whole
    assert "".join(piece["text"] for piece in pieces) == whole["answers"][0]["replies"][0]["text"]
    with pytest.raises(RequestError, match=r"^a dialogue must be its turns so far, separated by tabs, got '\\t'"):
        endpoint.read(endpoint.schema.request(text="\t", stream=True))


def test_samples_have_steps_one_by_one() -> None:
    with pytest.raises(ValueError, match=r"^count=2 samples per line have no common steps; give count=1$"):
        search_steps(None, None, Sampling(2), torch.tensor([3]), [0])  # type: ignore[arg-type]


def test_the_history_of_a_staged_training_grows(file: Path, tmp_path: Path) -> None:
    """From one turn to all; every epoch has the same replies in every batch as without stages."""
    options: dict[str, Any] = {"train": file, "tokens": "words", "turns": 5, "words": 5, "batch": 64}
    options |= {"width": 8, "heads": 2, "layers": 1, "replies": "all"}
    staged, whole = (Respond.of(**options, staged_epochs=n) for n in (3, 0))
    assert [staged.turns_in(epoch) for epoch in range(5)] == [1, 2, 3, 5, 5]
    assert [whole.turns_in(epoch) for epoch in range(2)] == [5, 5]
    problems = [task.load().prepare(tmp_path / str(n), new=True) for n, task in enumerate((staged, whole))]
    for epoch in (0, 1, 3):
        for planned, usual in zip(*(problem.plan_epoch(epoch) for problem in problems), strict=True):
            assert planned.rows.tolist() == usual.rows.tolist()
            batch, other = (p.load_batch(each, 0, 1) for p, each in zip(problems, (planned, usual), strict=True))
            assert batch is not None
            assert other is not None
            assert torch.equal(batch.target, other.target)
            most = staged.turns_in(epoch)
            count = min(other.history.lengths.shape[1], most)
            # of replies whose last turns have no words all turns are read
            is_short = (other.history.lengths[:, -count:] > 0).any(1)
            kept = batch.history.lengths[is_short]
            assert not kept[:, :-count].any()
            assert torch.equal(kept[:, -count:], other.history.lengths[is_short, -count:])


def test_fewer_turns_are_read_before_some_replies(file: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"train": file, "tokens": "words", "turns": 3, "words": 5, "batch": 64, "replies": "all"}
    options |= {"width": 8, "heads": 2, "layers": 1}
    task, whole = (Respond.of(**options, history_dropout=share) for share in (0.4, 0.0))
    assert [task.turns_kept(3, draw) for draw in (0.0, 0.19, 0.2, 0.39, 0.4, 0.99)] == [1, 1, 2, 2, 3, 3]
    assert [task.turns_kept(1, draw) for draw in (0.0, 0.39, 0.99)] == [1, 1, 1]
    assert whole.turns_kept(3, 0.0) == 3
    problem, usual = (each.load().prepare(tmp_path / str(n), new=True) for n, each in enumerate((task, whole)))
    draws = set()
    for epoch in (0, 1):
        for planned, other in zip(problem.plan_epoch(epoch), usual.plan_epoch(epoch), strict=True):
            batch, full = problem.load_batch(planned, 0, 1), usual.load_batch(other, 0, 1)
            assert batch is not None
            assert full is not None
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


@pytest.mark.parametrize("options", [{"staged_epochs": 2}, {"history_dropout": 0.5}])
def test_histories_are_cut_for_single_replies_alone(options: dict[str, Any]) -> None:
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"^{name}={value} is for replies='all', and with replies='second' one pass"):
        Respond.of(data="bookings", **options)


def test_shares_and_numbers_of_epochs() -> None:
    with pytest.raises(ValueError, match=r"^staged_epochs must be 0 or more, got -1; try staged_epochs=4$"):
        Respond.of(data="bookings", staged_epochs=-1)
    with pytest.raises(
        ValueError, match=r"^history_dropout must be 0 or more and below 1, got 1.0; try history_dropou"
    ):
        Respond.of(data="bookings", history_dropout=1.0)
