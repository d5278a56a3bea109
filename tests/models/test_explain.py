"""explain of whole models names what runs: in training and evaluation, with and without gradients and steps."""

from collections.abc import Callable
from typing import Any

import torch
from tests.attn.test_explain import explained, probe
from tests.for_each import for_each
from tests.models import cases, language_model_cases
from tests.models.cases import B, S
from torch import nn

import regard
from regard.attn.functional import trace_function
from regard.layers.packed_texts import PackedTexts
from regard.models import BERT, ViT
from regard.models.transfer.text_embedder import TextEmbedder
from regard.models.transfer.text_encoder import TextEncoder


def agree(function: Callable[..., Any], *args: Any) -> Any:
    """A call runs what its explanation says, in the same order; returns its result."""
    text = "\n".join(text for _, text in trace_function(function, *args))
    with probe() as ran:
        result = function(*args)
    assert ran == explained(text), text
    return result


def in_every_mode(check: Callable[[nn.Module], None], model: nn.Module) -> None:
    for training in (True, False):
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                check(model.train(training))


@for_each("name", cases.ALL, share=0.15)
def test_every_translator_runs_what_explain_says(name: str) -> None:
    source, lengths, target = cases.given()

    def check(model: Any) -> None:
        agree(model, source, lengths, target)
        state = agree(model.init_state, source, lengths)
        for t in range(2):
            state = agree(model.step, target[:, t : t + 1], state).state

    in_every_mode(check, cases.built(cases.ALL[name]))


@for_each("name", language_model_cases.ALL, share=0.15)
def test_every_language_model_runs_what_explain_says(name: str) -> None:
    texts = language_model_cases.texts()

    def check(model: Any) -> None:
        agree(model, texts)
        state = agree(model.init_state, texts[:, :3])
        for t in range(3, 5):
            state = agree(model.step, texts[:, t : t + 1], state).state

    in_every_mode(check, language_model_cases.built(language_model_cases.ALL[name]))


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(1, 11, shape)


TINY: dict[str, Any] = {"width": 12, "layers": 2, "heads": 3, "feed": 10}
OTHERS: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = {
    "bert": lambda: (BERT(11, longest=9, **TINY), (tokens(B, S), regard.Lengths([4, 7, 1]))),
    "vit": lambda: (ViT(8, patch=4, **TINY), (torch.randn(B, 3, 8, 8),)),
    "texts": lambda: (
        TextEmbedder(TextEncoder(BERT(11, longest=9, **TINY))),
        (PackedTexts.of([[3, 4, 5], [5, 9], [8]]),),
    ),
}


@for_each("name", OTHERS)
def test_other_models_run_what_explain_says(name: str) -> None:
    built, args = OTHERS[name]()
    in_every_mode(lambda model: agree(model, *args), built)


def test_a_path_of_all_layers_gives_its_reason() -> None:
    model, (source, lengths, target) = cases.built(cases.ALL["pre, sinusoidal"]).eval(), cases.given()
    text = regard.explain(model, source, lengths, target)
    assert "encoder:\n  encoder  cannot: gradients are on\nencoder.0.attention, encoder.1.attention:\nDot()" in text
    with torch.no_grad():
        state = model.init_state(source, lengths)
        text = regard.explain(model.step, target[:, :1], state)
        assert text == "decoder:\n  decoder  runs: the step of all layers in one native kernel"
        text = regard.explain(lambda: regard.attention(torch.randn(2, 3, 5), torch.randn(2, 3, 5)))
        assert text.startswith("function:\nDot(), Softmax()")
