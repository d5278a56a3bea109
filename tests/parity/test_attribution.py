"""Attributions against captum, networkx and plain formulas."""

from collections.abc import Callable
from itertools import product
from typing import Any

import captum.attr
import networkx
import pytest
import torch
from tests.attribution.classifiers import made
from tests.attribution.structured import made_structured
from torch import Tensor

import regard
from regard.attribution import Attribution, GradientInput, IntegratedGradients
from regard.attribution.max_flow import maximum_flows
from regard.inference.embedded_classifier import TokenInput, edited_vectors


def logits_of_vectors(predictor: Any, tokens: TokenInput) -> Callable[[Tensor], Tensor]:  # "b r t d" -> "b k"
    """The logits as a function of the vectors of the tokens."""

    def logits(vectors: Tensor) -> Tensor:
        rows = []
        for each in vectors:
            with edited_vectors(predictor, lambda number, layer, own, each=each: each):
                rows.append(predictor.token_logits([tokens])[0])
        return torch.stack(rows)

    return logits


def check_captum(predictor: Any, tokens: TokenInput, target: int, attribute: Callable[[Any], Attribution]) -> None:
    """Compares attributions of one input with those of captum at the vectors of its tokens."""
    (layer,) = {layer.module: layer for layer in predictor.token_layers}.values()
    calls: list[Tensor] = []
    with torch.no_grad(), edited_vectors(predictor, lambda number, layer, own: calls.append(own) or own):
        predictor.token_logits([tokens])
    (vectors,) = calls
    (cells,) = predictor.vector_places([tokens])
    words, absent = cells[list(tokens.words)], vectors.clone()
    absent[words[:, 1], words[:, 2]] = layer.absent(vectors)
    logits = logits_of_vectors(predictor, tokens)

    def of_tokens(attributed: Tensor) -> Tensor:
        return attributed[0].sum(-1)[cells[:, 1], cells[:, 2]].float()

    x, baseline = vectors[None].requires_grad_(), absent[None]
    theirs = of_tokens(captum.attr.IntegratedGradients(logits).attribute(x, baseline, target=target, n_steps=50))
    ours = attribute(IntegratedGradients(steps=50, tolerance=float("inf")))
    torch.testing.assert_close(ours.scores, theirs, atol=1e-6, rtol=1e-5)
    products = of_tokens(captum.attr.InputXGradient(logits).attribute(x, target=target))
    torch.testing.assert_close(attribute(GradientInput()).scores, products, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["self-attentive", "encoder", "transformers", "esim", "joined pair"])
def test_captum(name: str) -> None:
    predictor, given = made(name)
    (tokens,) = predictor.encode_tokens([given])
    check_captum(predictor, tokens, 1, lambda method: regard.attribute(predictor, given, 1, method))


@pytest.mark.parametrize("name", ["recurrent tagger", "encoder tagger", "recurrent translator"])
def test_captum_on_tags_and_words(name: str) -> None:
    predictor, text, target = made_structured(name)
    part = predictor.output_part(text, target)
    check_captum(*part, 0, lambda method: regard.attribute(predictor, text, target, method))


def test_the_maximum_flow_of_networkx() -> None:
    torch.manual_seed(0)
    n, layers = 5, 3
    capacities = [torch.rand(n, n).softmax(-1) for _ in range(layers)]
    graph = networkx.DiGraph()
    for layer, i, j in product(range(layers), range(n), range(n)):
        graph.add_edge((layer, i), (layer + 1, j), capacity=float(capacities[layer][i, j]))
    for source in (0, 3):
        theirs = [networkx.maximum_flow_value(graph, (0, source), (layers, j)) for j in range(n)]
        torch.testing.assert_close(maximum_flows(capacities, source), torch.tensor(theirs), atol=2e-6, rtol=0)


@pytest.mark.parametrize(("name", "row"), [("encoder", 0), ("transformers", 0), ("encoder, mean", None)])
def test_rollout_and_relevance_by_their_formulas(name: str, row: int | None) -> None:
    predictor, given = made(name)
    tokens = predictor.encode_tokens([given])
    with regard.record(predictor.model, gradients=True) as recording:
        logits = predictor.token_logits(tokens)
    logits[0, 2].backward()
    count = len(tokens[0])
    rolled = related = torch.eye(count)
    for item in recording:
        weights, gradient = item.weights.dense()[0], item.gradient.dense()[0]  # "h q k"
        rolled = (0.5 * weights.mean(0) + 0.5 * torch.eye(count)) @ rolled
        related = related + (weights * gradient).clamp_min(0).mean(0) @ related
    predictor.model.zero_grad(set_to_none=True)
    for method, matrix in (("rollout", rolled), ("relevance", related)):
        expected = matrix.mean(0) if row is None else matrix[row]
        ours = regard.attribute(predictor, given, 2, method).scores
        torch.testing.assert_close(ours, expected.detach(), atol=1e-5, rtol=1e-4)
