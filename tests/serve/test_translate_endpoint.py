"""A translator behind the service: answers equal its translations, and a bad request gets one sentence."""

from typing import Any

import pytest
import torch
from tests.serve.conftest import LINES, Make, read

from regard.decoding.search import Beam, Greedy
from regard.inference.limits import Limits
from regard.serve.errors import RequestError
from regard.tasks.loading import LoadedRun
from regard.tasks.translate.endpoint import TranslateEndpoint, TranslateRequest
from regard.tasks.translate.options import Translate
from regard.tasks.translate.predictor import Translator

BAD: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": ({}, ["give text", "texts", "not both"]),
    "both": ({"text": "a", "texts": ["a"]}, ["not both"]),
    "a number": ({"text": 3}, ["text must be a string", "a number"]),
    "null": ({"text": None}, ["text must be a string", "null"]),
    "a string of texts": ({"texts": "a"}, ["texts must be a list", "a string", "write text"]),
    "no texts": ({"texts": []}, ["texts is an empty list; give 1 to 7"]),
    "too many": ({"texts": ["a"] * 8}, ["texts must be 1 to 7", "got 8", "several requests"]),
    "a list of texts": ({"texts": ["a", ["b"]]}, ["texts[1] must be a string", "a list"]),
    "characters": ({"text": "a" * 101}, ["text must have at most 100 characters", "101", "sentence by sentence"]),
    "tokens": ({"texts": ["a", "a b " * 7]}, ["texts[1] must have at most 13 tokens", "got 15"]),
    "half a character": ({"text": "a\ud800"}, ["text holds half a character", "position 2"]),
    "an unknown field": ({"text": "a", "beems": 3}, ["unknown field 'beems'", "did you mean 'beam'?", "nbest"]),
    "a far field": ({"text": "a", "x" * 99: 3}, ["unknown field 'xxx", "…'; known are: text"]),
    "beam of nought": ({"text": "a", "beam": 0}, ["beam must be a whole number from 1 to 5", "got 0"]),
    "beam too large": ({"text": "a", "beam": 6}, ["beam must be a whole number from 1 to 5", "got 6"]),
    "beam of a half": ({"text": "a", "beam": 2.5}, ["beam must be a whole number", "got 2.5"]),
    "beam of words": ({"text": "a", "beam": "5"}, ["beam must be a whole number", "got a string"]),
    "beam of truth": ({"text": "a", "beam": True}, ["beam must be a whole number", "got true or false"]),
    "beam of many digits": ({"text": "a", "beam": 10**99}, ["beam must be a whole number", "1000"]),
    "nbest of none": ({"text": "a", "nbest": None}, ["nbest must be a whole number", "got null"]),
    "nbest above beam": ({"text": "a", "beam": 2, "nbest": 3}, ["nbest=3", "beam=2", "raise beam"]),
    "alignment of one": ({"text": "a", "alignment": 1}, ["alignment must be true or false", "a number"]),
    "many pictures": (
        {"texts": ["a", "b"], "nbest": 3, "alignment": True},
        ["at most 5 translations", "2 texts with nbest=3", "leave alignment out"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence(name: str, translating: Make) -> None:
    body, parts = BAD[name]
    served = translating(texts=7, characters=100, tokens=13, beam=5, pictures=5)
    with pytest.raises(RequestError) as caught:
        read(served, body)
    assert caught.value.status == 422
    assert len(caught.value.sentence) < 250
    for part in parts:
        assert part in caught.value.sentence


def test_what_is_left_out(translating: Make) -> None:
    assert read(translating(), {"text": "a b"}) == TranslateRequest(("a b",), Beam(5, 1), alignment=False)
    assert read(translating(beam=3), {"text": ""}).search == Beam(3, 1)
    assert read(translating(), {"texts": ["a", "b"], "beam": 1}) == TranslateRequest(
        ("a", "b"), Greedy(), alignment=False
    )
    body = translating().schema.request
    assert set(body.model_fields) == {"text", "texts", "beam", "nbest", "alignment"}
    read(translating(), body.model_json_schema()["example"])


def test_together_as_alone(translating: Make, loaded: LoadedRun) -> None:
    """Requests of every kind in one call: each answer equals that of the translator to the request alone."""
    translator: Any = loaded.predictor
    served = translating()
    bodies: list[dict[str, Any]] = [
        {"text": "a b c"},
        {"texts": LINES[:7], "beam": 1},
        {"texts": ["e d", "", "  ", "b c d e a b c"], "nbest": 3, "alignment": True},
        {"text": "x y a", "beam": 2, "nbest": 2},
        {"texts": LINES[7:12], "alignment": True},
    ]
    requests = [read(served, body) for body in bodies]
    for request, response in zip(requests, served.answer(requests), strict=True):
        answers: Any = response["answers"]
        assert [answer["source"] for answer in answers] == list(request.texts)
        for text, answer in zip(request.texts, answers, strict=True):
            (hypotheses,) = translator.translate([text], request.search)
            translations = answer["translations"]
            assert [each["text"] for each in translations] == [hypothesis.text for hypothesis in hypotheses]
            assert [each["finished"] for each in translations] == [hypothesis.finished for hypothesis in hypotheses]
            for each, hypothesis in zip(translations, hypotheses, strict=True):
                assert each["score"] == pytest.approx(hypothesis.score, rel=5e-3, abs=1e-3)
                assert each["log_prob"] == pytest.approx(hypothesis.log_prob, rel=5e-3, abs=5e-4)
                if not request.alignment:
                    assert "alignment" not in each
                    continue
                (aligned,) = translator.align([text], [hypothesis])
                alignment = each["alignment"]
                assert [alignment["source"], alignment["target"]] == [aligned.source, aligned.target]
                torch.testing.assert_close(torch.tensor(alignment["weights"]), aligned.weights, atol=2e-6, rtol=0)
    # x and y are not in the vocabulary
    assert served.answer([requests[3]])[0]["answers"][0]["unknown"] == 2  # type: ignore[index]


def test_a_model_without_attention(loaded: LoadedRun) -> None:
    task = Translate.of(train=(loaded.config.train), tokens="words", width=6, hidden=8, decoder="fixed")
    translator: Any = loaded.predictor
    served = TranslateEndpoint(Translator.of(task, translator.vocabularies), Limits(), run="x", step=1)
    assert served.model_info()["attends"] is False
    with pytest.raises(RequestError, match="this model has none .decoder fixed.; leave it out"):
        read(served, {"text": "a", "alignment": True})
    (answer,) = served.answer([read(served, {"text": "a"})])
    assert len(answer["answers"]) == 1  # type: ignore[arg-type]


def test_learned_positions_bound_the_tokens(loaded: LoadedRun) -> None:
    task = Translate.of(
        train=(loaded.config.train),
        tokens="words",
        width=6,
        heads=2,
        model="transformer",
        positions="learned",
        max_length=5,
    )
    run: Any = loaded.predictor
    translator = Translator.of(task, run.vocabularies)
    TranslateEndpoint(translator, Limits(tokens=11), run="x", step=1)
    with pytest.raises(
        ValueError, match="tokens=12 is more than the 11 positions that this model learned; try tokens=5"
    ):
        TranslateEndpoint(translator, Limits(tokens=12), run="x", step=1)


def test_limits_are_checked() -> None:
    with pytest.raises(ValueError, match="batch must be more than 0 and finite, got 0; the default is 64"):
        Limits(batch=0)
    with pytest.raises(ValueError, match="seconds must be more than 0 and finite, got inf"):
        Limits(seconds=float("inf"))
    with pytest.raises(
        ValueError, match="waiting must hold the texts of one request, 32, got 5; try waiting=32 or texts=5"
    ):
        Limits(waiting=5)
