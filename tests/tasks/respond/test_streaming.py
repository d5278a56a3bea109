"""Conversations: replies in pieces, the words behind them, and the service."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tasks.respond.runs import INPUTS, loaded
from torch import Tensor

import regard
from regard.data.text.special_tokens import EOS
from regard.data.text.tokenizer import Tokenizer
from regard.decoding.protocol import Step
from regard.inference.limits import Limits
from regard.models.responding.responder import History, Responder
from regard.serve.errors import RequestError
from regard.tasks.respond.data import DialogueReader
from regard.tasks.respond.options import PredictReplies
from regard.tasks.respond.predictor import RespondPredictor


class Spelling(Responder):
    """Writes these tokens, whatever was said; the state of a hypothesis is the number of its tokens."""

    def __init__(self, vocabulary: int, tokens: Sequence[int]) -> None:
        super().__init__()
        self.vocabulary, self.spelt = vocabulary, tokens
        self.register_parameter("unused", torch.nn.Parameter(torch.zeros(1)))

    def teacher_force(self, *arguments: Any) -> Any:
        raise NotImplementedError

    def token_loss(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError

    def forward(self, *arguments: Any) -> Any:
        raise NotImplementedError

    def init_state(self, history: History) -> int:
        return 0

    def step(self, tokens: Tensor, state: Any) -> Step:
        wanted = torch.tensor(self.spelt[state])
        return Step(torch.nn.functional.one_hot(wanted, self.vocabulary).double().expand(*tokens.shape, -1), state + 1)


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


@pytest.mark.parametrize("name", ["flat", "flat, pointer", "hierarchical"])
def test_a_streamed_reply_is_the_whole_one(name: str, runs: dict[str, Path]) -> None:
    predictor = regard.load(str(runs[name]), device="cpu")
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


def test_a_service_streams_the_answer_that_it_gives(runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = regard.load(str(runs["flat"]), device="cpu")
    endpoint = predictor.endpoint(Limits(), run="tiny", step=2)
    body = {"text": "good film\tit\tbad", "attention": True, "temperature": 0.8, "seed": 5}
    whole = endpoint.answer([endpoint.read(endpoint.schema.request(**body))])[0]
    starts: list[History] = []
    start = predictor.model.init_state

    def counted(history: History) -> Any:
        starts.append(history)
        return start(history)

    monkeypatch.setattr(predictor.model, "init_state", counted)
    *pieces, last = endpoint.stream(endpoint.read(endpoint.schema.request(**body, stream=True)))
    assert last == whole
    # one search for the pieces and the answer
    assert len(starts) == 1
    assert "".join(piece["text"] for piece in pieces) == whole["answers"][0]["replies"][0]["text"]
    with pytest.raises(RequestError, match="^text is empty; give at least one word"):
        endpoint.read(endpoint.schema.request(text="\t", stream=True))
