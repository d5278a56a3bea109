"""A translator behind the service: answers equal its translations, and a bad request gets one sentence."""

from typing import Any

import pytest
import torch
from tests.for_each import for_each
from tests.serve.conftest import LINES, Make, read

from regard.decoding.search import Beam, Greedy, Sampling
from regard.inference.limits import Limits
from regard.serve.errors import RequestError
from regard.tasks.loading import LoadedRun
from regard.tasks.translate.endpoint import TranslateEndpoint, TranslateRequest
from regard.tasks.translate.options import Translate
from regard.tasks.translate.predictor import Translator

BAD: dict[str, tuple[dict[str, Any], list[str]]] = {
    "too many": ({"texts": ["a"] * 8}, ["texts must be 1 to 7", "got 8", "several requests"]),
    "tokens": ({"texts": ["a", "a b " * 7]}, ["texts[1] must have at most 13 tokens", "got 15"]),
    "beam too large": ({"text": "a", "beam": 6}, ["beam must be a whole number from 1 to 5", "got 6"]),
    "beam of a half": ({"text": "a", "beam": 2.5}, ["beam must be a whole number", "got 2.5"]),
    "nbest above beam": ({"text": "a", "beam": 2, "nbest": 3}, ["nbest=3", "beam=2", "raise beam"]),
    "a beam of samples": ({"text": "a", "sample": True, "beam": 2}, ["beam 2 means nothing with sample; leave one"]),
    "a penalty of samples": (
        {"text": "a", "sample": True, "length_penalty": 0.5},
        ["length_penalty 0.5 means nothing with sample; leave one of them out"],
    ),
    "samples unasked": ({"text": "a", "seed": 3}, ["seed 3 means nothing without sample; add sample or leave it out"]),
    "no temperature": ({"text": "a", "sample": True, "temperature": 0}, ["temperature must be a number above 0"]),
    "an unknown split": ({"text": "a", "split": "words"}, ["unknown split 'words'", "none, lines, sentences"]),
    "a language without sentences": (
        {"text": "a", "split": "lines", "language": "de"},
        ['language is an option of "split": "sentences"; leave it out, or add this one'],
    ),
    "a language in words": (
        {"text": "a", "language": "English"},
        ["language must be a code such as en or deu, got 'English'; leave it out for en"],
    ),
    "too many lines": (
        {"text": "a\n" * 8, "split": "lines"},
        ["a request has at most 7 lines, got 8; send several requests"],
    ),
    "tokens of a sentence": (
        {"text": "a.\n" + "a b " * 7, "split": "sentences"},
        ["text must have at most 13 tokens, got 14; shorten its longest sentence"],
    ),
    "many pictures of lines": (
        {"text": "a\nb", "split": "lines", "nbest": 3, "alignment": True},
        ["at most 5 translations per request, got 2 lines with nbest=3"],
    ),
    "many pictures": (
        {"texts": ["a", "b"], "nbest": 3, "alignment": True},
        ["at most 5 translations", "2 texts with nbest=3", "leave alignment out"],
    ),
}


@for_each("name", BAD)
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
    assert read(translating(beam=3), {"text": "a"}).search == Beam(3, 1)
    assert read(translating(), {"texts": ["a", "b"], "beam": 1}) == TranslateRequest(
        ("a", "b"), Greedy(), alignment=False
    )
    body = translating().schema.request
    options = {"length_penalty", "sample", "temperature", "top_k", "top_p", "seed", "split", "language"}
    assert set(body.model_fields) == {"text", "texts", "beam", "nbest", "alignment"} | options
    read(translating(), body.model_json_schema()["example"])


def test_together_as_alone(translating: Make, loaded: LoadedRun) -> None:
    """Requests of every kind in one call: each answer equals that of the translator to the request alone."""
    translator: Any = loaded.predictor
    served = translating()
    bodies: list[dict[str, Any]] = [
        {"text": "a b c"},
        {"texts": LINES[:7], "beam": 1},
        {"texts": ["e d", "zz", " ?", "b c d e a b c"], "nbest": 3, "alignment": True},
        {"text": "x y a", "beam": 2, "nbest": 2},
        {"texts": LINES[7:12], "alignment": True},
        {"texts": ["a b", "c"], "beam": 2, "length_penalty": 0.0},
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


def test_samples_depend_on_the_seed_and_the_line_alone(translating: Make, loaded: LoadedRun) -> None:
    translator: Any = loaded.predictor
    served = translating()
    asked = {"texts": ["a b c", "a b c"], "sample": True, "nbest": 2, "temperature": 2.0, "top_k": 4, "seed": 7}
    requests = [read(served, body) for body in ({"text": "e"}, asked, {**asked, "texts": ["a b c"]})]
    assert requests[1].search == Sampling(2, 2.0, 4, None, 7)
    _, several, single = [response["answers"] for response in served.answer(requests)]
    assert several[0] == single[0]  # type: ignore[index]
    found = translator.translate(["a b c"] * 2, requests[1].search)
    for answer, hypotheses in zip(several, found, strict=True):  # type: ignore[call-overload]
        assert [each["text"] for each in answer["translations"]] == [hypothesis.text for hypothesis in hypotheses]
        assert all(each["score"] == each["log_prob"] for each in answer["translations"])


def test_a_text_is_split_and_joined_again(translating: Make) -> None:
    served = translating()
    text = "  a b now. Ever d!\n\nc"
    together = read(served, {"texts": [text, "d"], "split": "sentences", "nbest": 2, "alignment": True})
    assert together.lines == ["a b now.", "Ever d!", "c", "d"]
    assert together.count == 4
    (response,) = served.answer([together])
    first, second = response["answers"]  # type: ignore[misc]
    alone = served.answer([read(served, {"text": line, "nbest": 2, "alignment": True}) for line in together.lines])
    assert [segment.pop("before") for segment in first["segments"]] == ["  ", " ", "\n\n"]
    assert first["segments"] == [each["answers"][0] for each in alone[:3]]  # type: ignore[index]
    best = [segment["translations"][0] for segment in first["segments"]]
    assert first["translations"] == [
        {
            "text": f"  {best[0]['text']} {best[1]['text']}\n\n{best[2]['text']}",
            "score": pytest.approx(sum(each["score"] for each in best), abs=1e-3),
            "log_prob": pytest.approx(sum(each["log_prob"] for each in best), abs=1e-3),
            "finished": all(each["finished"] for each in best),
        }
    ]
    assert first["unknown"] == sum(segment["unknown"] for segment in first["segments"])
    assert second["segments"][0]["translations"] == alone[3]["answers"][0]["translations"]  # type: ignore[index]
    assert read(served, {"text": text, "split": "lines"}).lines == ["a b now. Ever d!", "c"]


def test_a_model_without_attention(loaded: LoadedRun) -> None:
    task = Translate.of(train=(loaded.config.train), tokens="words", width=6, hidden=8, decoder="fixed")
    translator: Any = loaded.predictor
    served = TranslateEndpoint(Translator.of(task, translator.vocabularies), Limits(), run="x", step=1)
    assert served.model_info()["attends"] is False
    with pytest.raises(RequestError, match="this model has none .a decoder without attention.; leave it out"):
        read(served, {"text": "a", "alignment": True})
    (answer,) = served.answer([read(served, {"text": "a"})])
    assert len(answer["answers"]) == 1  # type: ignore[arg-type]


def test_learned_positions_bound_the_tokens(loaded: LoadedRun) -> None:
    sizes: dict[str, Any] = {"model": "transformer", "width": 6, "heads": 2, "positions": "learned", "max_length": 5}
    task = Translate.of(train=loaded.config.train, tokens="words", **sizes)
    run: Any = loaded.predictor
    translator = Translator.of(task, run.vocabularies)
    TranslateEndpoint(translator, Limits(tokens=11), run="x", step=1)
    sentence = "tokens=12 is more than the 11 positions that this model learned; try tokens=5"
    with pytest.raises(ValueError, match=sentence):
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
