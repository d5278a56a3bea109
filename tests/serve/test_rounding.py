"""An answer does not depend on its batch: the law for every endpoint, digit by digit, and the cases that need care."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests import product
from tests.serve import pictures, texts
from tests.serve.conftest import LINES, read
from tests.serve.pictures import drawn, packed, sent
from tests.serve.text_runs import TEXT_RUNS, text_for, text_run
from tests.tasks.transcribe.test_endpoint import encoded, small_predictor
from torch import Tensor, nn

from regard.data.text.tokenizer import Tokenizer
from regard.decoding.margins import NOISE
from regard.decoding.search import Greedy
from regard.inference.endpoint import Endpoint
from regard.inference.limits import Limits
from regard.inference.margins import ranking_margin
from regard.serve import rounding
from regard.serve.rounding import is_clear, noise_of, rounded, settle
from regard.tasks.registry import TASKS
from regard.tasks.shared.image_endpoint import ImageEndpoint
from regard.tasks.shared.text_generation import GeneratedText
from regard.tasks.transcribe.endpoint import SoundEndpoint
from regard.tasks.translate import endpoint as translate_endpoint
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


LONGER = [*LINES[:40], *(" ".join(LINES[n : n + 4]) for n in range(22)), "a", "b"]
TEXTS = [{"text": text} for text in LONGER]
SOUNDS = [{"audio": encoded(np.random.default_rng(n).uniform(-0.5, 0.5, 400 + 80 * n))} for n in range(64)]
IMAGES = [{"image": sent(packed(drawn(n)))} for n in range(64)]
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
    "sounds": (lambda: SoundEndpoint(small_predictor(), Limits(), run="tiny", step=1), SOUNDS),
}
# requests of a batch have options of their own
GENERATIONS: list[dict[str, Any]] = [
    {"tokens": 9},
    {"tokens": 6, "temperature": 0},
    {"tokens": 30, "seed": 5, "top_k": 4},  # longer than the context
    {"tokens": 7, "top_p": 0.8, "min_p": 0.05, "count": 2},
    {"tokens": 8, "repetition_penalty": 1.3, "stop": ["a", "b"]},
]
DETAIL = {"seq2seq": "alignment", "transformer": "alignment", "texts": "attention", "sounds": "alignment"}


def sample(values: Sequence[Any]) -> Sequence[Any]:
    """A third of the values; all of them for --whole."""
    return values if product.whole else values[::3]


def requests_of(endpoint: Endpoint, bodies: Sequence[dict[str, Any]]) -> list[Any]:
    requests = [read(endpoint, body) for body in bodies]
    if endpoint.unpack is not None:
        requests = [endpoint.unpack(request) for request in requests]
    return requests


def differences(endpoint: Endpoint, bodies: Sequence[dict[str, Any]], sizes: Sequence[int] = (2, 3, 7, 20, 64)) -> int:
    """The number of answers that are not those of the same request alone, in batches of these sizes in any order."""
    requests, random = requests_of(endpoint, bodies), np.random.default_rng(7)
    alone, different = [json.dumps(endpoint.answer([request])[0]) for request in requests], 0
    for size in sizes:
        chosen = random.permutation(len(requests))[:size]
        answers = endpoint.answer([requests[n] for n in chosen])
        different += sum(json.dumps(answer) != alone[n] for answer, n in zip(answers, chosen, strict=True))
    return different


@pytest.mark.parametrize("name", ENDPOINTS)
def test_an_answer_does_not_depend_on_its_batch(name: str) -> None:
    make, bodies = ENDPOINTS[name]
    detail = DETAIL.get(name, "maps")
    assert differences(make(), [{**body, detail: n % 8 == 0} for n, body in enumerate(sample(bodies))]) == 0


@pytest.mark.parametrize("task", TEXT_RUNS)
def test_the_law_of_texts(task: str, tmp_path: Path) -> None:
    made = text_run(task, tmp_path).predictor.endpoint(Limits(), run="tiny", step=2)
    bodies = [{"text": text_for(task, text)} for text in sample(LONGER)]
    if task == "language-model":
        bodies = [{**body, **GENERATIONS[n % len(GENERATIONS)]} for n, body in enumerate(bodies)]
    assert differences(made, bodies) == 0


def test_every_served_task_keeps_the_law() -> None:
    served = {name for name, task in TASKS.items() if task.is_served}
    assert served == {*TEXT_RUNS, "translate", "classify-image", "glimpse", "caption", "transcribe"}


@contextmanager
def noise(layer: nn.Module, size: float) -> Iterator[None]:
    """Changes the logits of a layer in batches of more than one input: another machine, another order of sums."""
    random = torch.Generator().manual_seed(3)

    def change(module: nn.Module, inputs: Any, logits: Tensor) -> Tensor:
        return logits if len(logits) == 1 else logits + size * torch.rand(logits.shape, generator=random)

    hook = layer.register_forward_hook(change)
    yield
    hook.remove()


def tie(layer: nn.Linear) -> None:
    """Makes the last two classes or tokens equally probable, and more probable than the others."""
    with torch.no_grad():
        layer.weight[-1] = layer.weight[-2]
        layer.bias[-2:] = layer.bias.max() + 9


@pytest.mark.parametrize(("name", "beam"), [("seq2seq", 4), ("transformer", 1)])
def test_tied_tokens_are_decided_alone(name: str, beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails without the second computation: then the noise of the batch decides."""
    served = ENDPOINTS[name][0]()
    tie(served.predictor.model.output)
    bodies = [{"text": text, "beam": beam} for text in LONGER[:20]]
    with noise(served.predictor.model.output, 1e-6):
        assert differences(served, bodies, (20,)) == 0
        monkeypatch.setattr(translate_endpoint, "NOISE", -1.0)
        assert differences(served, bodies, (20,)) > 0


def final_layer(model: nn.Module) -> nn.Linear:
    return [module for module in model.modules() if isinstance(module, nn.Linear)][-1]


@pytest.mark.parametrize("name", ["texts", "classes", "captions"])
def test_tied_outputs_are_decided_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, bodies = ENDPOINTS[name]
    served: Any = make()
    model = served.predictor.model
    layer = model.output if name == "captions" else final_layer(model)
    tie(layer)
    with noise(layer, 1e-6):
        assert differences(served, bodies[:20], (20,)) == 0
        monkeypatch.setattr(rounding, "NOISE", -1.0)
        assert differences(served, bodies[:20], (20,)) > 0


def test_a_log_prob_at_the_end_of_an_interval_is_computed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search of two batches may give either number; the pass over the translation alone gives one."""
    served = translator(Seq2SeqOptions(width=16, hidden=24, dropout=0.0))
    ((found,),) = served.predictor.translate(["a b"], Greedy())
    exact = served.predictor.log_prob("a b", found)
    assert exact == pytest.approx(found.log_prob, abs=noise_of(exact, "log_prob"))

    def answers() -> list[Any]:
        near = [GeneratedText(found.text, found.tokens, x, 0.0, found.finished) for x in (-0.0125001, -0.0124999)]
        return [served._translation("a b", hypothesis, Greedy()) for hypothesis in near]

    first, second = answers()
    assert first == second
    assert first["log_prob"] == rounded(exact, "log_prob")
    monkeypatch.setattr(translate_endpoint, "is_clear", lambda *_: True)
    first, second = answers()
    assert first["log_prob"] != second["log_prob"]


@pytest.mark.parametrize(
    ("value", "clear"),
    [(0.25, True), (0.0035, False), (0.0035 * (1 + 1e-5), True), (0.0, True), (1, True), ("a", True), (None, True),
     ([0.25, 0.0035], False), ({"log_prob": -2.125}, False), ({"log_prob": -2.1251}, True), (float("inf"), True),
     ({"path": [{"x": 0.0125, "y": 0.2}]}, False), ({"path": [{"x": 0.01251, "y": 0.2}]}, True)],
)  # fmt: skip
def test_clear(value: Any, clear: bool) -> None:
    assert is_clear(value) == clear


@pytest.mark.parametrize(
    ("value", "short"),
    [({"log_prob": -9.1373}, {"log_prob": -9.14}), ({"score": -23.46}, {"score": -23.5}),
     ({"score": -0.0004}, {"score": 0}), ({"log_prob": -1234.4}, {"log_prob": -1234.0}),
     ({"a": 0.12346}, {"a": 0.123}), ([0.9996], [1.0]), ("a", "a")],
)  # fmt: skip
def test_rounded(value: Any, short: Any) -> None:
    assert rounded(value) == short
    assert str(rounded(-0.0)) == "0.0"


def test_an_unclear_output_is_computed_alone() -> None:
    """The end of an interval of rounding lies between the number of the batch and that of the input alone; the third
    output has no margin."""
    alone, calls = [0.25, 0.0035000001, 0.125], []

    def predict(inputs: list[int]) -> list[float]:
        calls.extend(inputs)
        return [alone[n] for n in inputs]

    together = [0.25, 0.0034999999, 0.5]
    margins = dict(zip(together, (1.0, 1.0, NOISE / 2), strict=True))
    found = settle(together, range(3), predict, lambda number: {"p": number, "text": "a"}, margins.__getitem__)
    assert calls == [1, 2]
    assert found == [{"p": round(number, 3), "text": "a"} for number in alone]
    assert round(together[1], 3) != round(alone[1], 3)


def test_ranking_margin() -> None:
    assert ranking_margin([0.5, 0.4, 0.1], 1) == pytest.approx(0.2)
    assert ranking_margin([0.5, 0.4, 0.4], 1) == pytest.approx(0.2)
    assert ranking_margin([0.5, 0.4, 0.4], 2) == 0
    assert ranking_margin([0.5, 0.5, 0.0, 0.0], 1) == 0
    assert ranking_margin([1.0, 0.0, 0.0], 3) == 1
    assert ranking_margin([1.0], 1) == float("inf")
