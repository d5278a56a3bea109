"""An answer does not depend on its batch: the law for every endpoint, digit by digit, and the cases that need care."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.serve import pictures, texts
from tests.serve.conftest import LINES, read
from tests.serve.pictures import drawn, packed, sent

from regard.data.text.tokenizer import Tokenizer
from regard.decoding.search import Beam
from regard.inference.endpoint import Endpoint
from regard.inference.limits import Limits
from regard.serve.rounding import DIGITS, TOLERANCE, is_clear, rounded, settle
from regard.tasks._image_endpoint import ImageEndpoint
from regard.tasks.translate.endpoint import TranslateEndpoint
from regard.tasks.translate.options import Seq2SeqOptions, TransformerOptions
from regard.tasks.translate.predictor import Translator
from regard.tasks.translate.vocabularies import Vocabularies


def translator(options: Any) -> TranslateEndpoint:
    tokens = Tokenizer.train("words", ["a b c d e"], 20)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = options.build(len(tokens), len(tokens), shared=False, max_length=50).eval()
    return TranslateEndpoint(Translator(model, Vocabularies(tokens, tokens), most=9), Limits(), run="tiny", step=1)


def image(made: Callable[[], Any]) -> Callable[[], ImageEndpoint]:
    return lambda: ImageEndpoint(made(), Limits(), run="tiny", step=1)


LONGER = [*LINES[:11], *(" ".join(LINES[n : n + 4]) for n in range(9)), "a", ""]
TEXTS = [{"text": text} for text in LONGER]
IMAGES = [{"image": sent(packed(drawn(n)))} for n in range(17)]
ENDPOINTS: dict[str, tuple[Callable[[], Endpoint], list[dict[str, Any]]]] = {
    "seq2seq": (
        lambda: translator(Seq2SeqOptions(width=16, hidden=24, dropout=0.0)),
        [{**body, "nbest": 2} for body in TEXTS],
    ),
    "transformer": (lambda: translator(TransformerOptions(width=16, layers=1, heads=2, feed=24, dropout=0.0)), TEXTS),
    "texts": (texts.text_endpoint, [{"text": text[:40]} for text in LONGER]),
    "classes": (pictures.endpoint, IMAGES),
    "glimpses": (image(pictures.glimpse_classifier), IMAGES),
    "captions": (image(pictures.captioner), IMAGES),
}
DETAIL = {"seq2seq": "alignment", "transformer": "alignment", "texts": "attention"}


@pytest.mark.parametrize("name", ENDPOINTS)
def test_an_answer_does_not_depend_on_its_batch(name: str) -> None:
    make, bodies = ENDPOINTS[name]
    endpoint, random = make(), np.random.default_rng(7)
    bodies = [{**body, DETAIL.get(name, "maps"): n % 5 == 0} for n, body in enumerate(bodies)]
    requests = [read(endpoint, body) for body in bodies]
    if endpoint.unpack is not None:
        requests = [endpoint.unpack(request, lambda: False) for request in requests]
    alone = [endpoint.answer([request])[0] for request in requests]
    for size in (2, 5, len(requests)):
        chosen = random.permutation(len(requests))[:size]
        assert endpoint.answer([requests[n] for n in chosen]) == [alone[n] for n in chosen]


def test_scores_of_float32_depend_on_the_batch() -> None:
    """Why the model of an endpoint is in float64: in float32 a seventh decimal changes."""
    served = translator(Seq2SeqOptions(width=16, hidden=24, dropout=0.0)).translator
    assert served.dtype == torch.float64
    served.model.float()
    together = [hypothesis.log_prob for (hypothesis,) in served.translate(LONGER[:-1], Beam(5))]
    alone = [served.translate([text], Beam(5))[0][0].log_prob for text in LONGER[:-1]]
    assert rounded(together) != rounded(alone)
    assert together == pytest.approx(alone, abs=1e-4)


STEP = 10.0**-DIGITS


@pytest.mark.parametrize(
    ("value", "clear"),
    [(0.25, True), (3.5 * STEP, False), (3.5 * STEP + 2 * TOLERANCE, True), (-3.5 * STEP - TOLERANCE / 2, False),
     (0.0, True), (1, True), ("a", True), ([0.25, 3.5 * STEP], False), ({"log_prob": 3.5 * STEP}, False),
     ({"a": 0.25, "b": 0.25 - TOLERANCE / 2}, False), ({"a": 0.25, "b": 0.2}, True),
     ([{"score": -1.0}, {"score": -1.0}], False), ([{"x": 0.5}, {"x": 0.5}], True)],
)  # fmt: skip
def test_clear(value: Any, clear: bool) -> None:
    assert is_clear(value) == clear


def test_an_unclear_output_is_computed_alone() -> None:
    """The end of an interval of rounding lies between the number of the batch and that of the input alone."""
    alone, calls = [0.25, 3.5 * STEP + TOLERANCE / 3, 0.125], []

    def compute(n: int) -> float:
        calls.append(n)
        return alone[n]

    together = [0.25 + TOLERANCE / 3, 3.5 * STEP - TOLERANCE / 3, 0.125]
    found = settle(together, lambda number: {"score": number, "text": "a"}, compute)
    assert calls == [1]
    assert [output for output, _ in found] == [together[0], alone[1], together[2]]
    assert [written for _, written in found] == [{"score": round(number, DIGITS), "text": "a"} for number in alone]
    assert round(together[1], DIGITS) != round(alone[1], DIGITS)
