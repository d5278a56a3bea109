"""Attributions: laws that hold for every classifier and every method."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from tests.attribution.classifiers import CLASSES, CLASSIFIERS, EMBEDDED, STACKS, made
from tests.for_each import for_each

import regard
from regard.attribution import METHODS, IntegratedGradients, gradients
from regard.attribution.attribute import explained_logit
from regard.inference.embedded_classifier import TokenInput, at_places, token_gradients
from regard.interop import WithoutKeys, uniform

# those whose attention joins several maps, so that a method does not apply
_NOT_FOR = {
    "relevance": {"hierarchical", "bag", "bag of pairs"},
    "masked-keys": {"hierarchical", "esim", "decomposable", "co-encoder", "bag", "bag of pairs"},
    "gradient": {"bag", "bag of pairs"},
    "integrated-gradients": {"bag", "bag of pairs"},
    "attention": {"bag", "bag of pairs"},
    "rollout": {"bag", "bag of pairs"},
    "flow": {"bag", "bag of pairs"},
}


def logits_of(predictor: Any, tokens: Sequence[TokenInput]) -> torch.Tensor:  # -> "b k"
    with torch.no_grad():
        return predictor.token_logits(tokens)


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_scores_every_token(name: str, method: str) -> None:
    if name in _NOT_FOR.get(method, ()):
        with pytest.raises(ValueError, match="use the method|masked keys are those of|intervene replaced no weights"):
            regard.attribute(*made(name), "bad", method)
        return
    predictor, given = made(name)
    before = {key: value.clone() for key, value in predictor.model.state_dict().items()}
    result = regard.attribute(predictor, given, "bad", method)
    (tokens,) = predictor.encode_tokens([given])
    assert result.tokens == tokens.names
    assert result.scores.shape == (len(tokens),)
    assert result.scores.isfinite().all()
    assert result.scores.any()
    logits = logits_of(predictor, [tokens])[0].double()
    assert result.output == pytest.approx(float(logits[1]), abs=1e-6)
    assert result.probability == pytest.approx(float(logits.softmax(-1)[1]), abs=1e-6)
    assert all(torch.equal(before[key], value) for key, value in predictor.model.state_dict().items())
    assert all(p.grad is None for p in predictor.model.parameters())


@for_each("name", EMBEDDED)
def test_integrated_gradients_are_complete(name: str) -> None:
    predictor, given = made(name)
    result = regard.attribute(predictor, given, 2, IntegratedGradients(tolerance=1e-3, max_steps=12800))
    assert result.completeness.is_reached
    assert result.warnings == ()
    total = float(result.scores.double().sum())
    assert total == pytest.approx(result.completeness.difference, rel=2e-3)
    # special tokens keep their vectors
    assert not result.scores[torch.tensor(result.is_special)].any()


def test_long_texts_are_integrated_a_few_points_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor, given = made("self-attentive")
    whole = regard.attribute(predictor, given, 2).scores
    sizes = []

    def token_logits(tokens: Sequence[TokenInput]) -> torch.Tensor:
        sizes.append(sum(map(len, tokens)))
        return type(predictor).token_logits(predictor, tokens)

    monkeypatch.setattr(predictor, "token_logits", token_logits)
    monkeypatch.setattr(gradients, "_TOKENS", 25)
    torch.testing.assert_close(regard.attribute(predictor, given, 2).scores, whole)
    assert max(sizes) <= 25


def test_an_error_of_completeness_is_reported() -> None:
    predictor, given = made("esim")
    result = regard.attribute(predictor, given, 2, IntegratedGradients(steps=2, max_steps=2, tolerance=1e-6))
    error, difference = result.completeness.error, result.completeness.difference
    (warning,) = result.warnings
    assert warning == (
        f"the scores miss f(x) − f(x') = {difference:.3g} by {error:.3g} after 2 steps, so read them as approximate"
    )
    assert abs(float(result.scores.double().sum()) - difference) == pytest.approx(error, abs=1e-6)


def test_a_difference_of_zero_is_complete() -> None:
    predictor, given = made("self-attentive")
    with torch.no_grad():
        for p in predictor.model.parameters():
            p.zero_()
    result = regard.attribute(predictor, given, 2)
    assert (result.completeness.steps, result.warnings) == (50, ())


@for_each("name", CLASSIFIERS)
def test_leave_one_out_is_a_loop_over_shorter_texts(name: str) -> None:
    predictor, given = made(name)
    (tokens,) = predictor.encode_tokens([given])
    scores = regard.attribute(predictor, given, 0, "leave-one-out").scores
    whole = float(logits_of(predictor, [tokens])[0, 0])
    for n in range(len(tokens)):
        expected = 0.0
        if not tokens.is_special[n]:
            expected = whole - float(logits_of(predictor, [tokens.without({n})])[0, 0])
        assert float(scores[n]) == pytest.approx(expected, abs=1e-5)


def test_leave_one_out_of_a_bag_is_a_difference_of_texts() -> None:
    predictor, _ = made("bag")
    whole, shorter = (
        logits_of(predictor, predictor.encode_tokens([text]))[0, 0] for text in ("a good film.", "a film.")
    )
    score = regard.attribute(predictor, "a good film.", 0, "leave-one-out").scores[1]
    assert float(score) == pytest.approx(float(whole - shorter), abs=1e-6)


@for_each("name", CLASSIFIERS)
def test_a_batch_of_tokens_equals_one_by_one(name: str) -> None:
    predictor, given = made(name)
    (tokens,) = predictor.encode_tokens([given])
    variants = [tokens, tokens.without({1}), tokens.without(set(tokens.words)), tokens.without({1, 2, 3})]
    together = logits_of(predictor, variants)
    for variant, logits in zip(variants, together, strict=True):
        torch.testing.assert_close(logits_of(predictor, [variant])[0], logits, atol=1e-5, rtol=1e-4)


@for_each("name", CLASSIFIERS)
def test_logits_of_tokens_are_those_of_the_text(name: str) -> None:
    predictor, given = made(name)
    if not hasattr(predictor, "predict"):
        return
    (output,) = predictor.predict([given])
    logits = logits_of(predictor, predictor.encode_tokens([given]))[0]
    probabilities = dict(zip(CLASSES, logits.double().softmax(-1).tolist(), strict=True))
    assert dict(output.probabilities) == pytest.approx(probabilities, abs=1e-5)


@for_each("name", EMBEDDED)
def test_gradients_of_a_batch_are_at_the_places_of_their_tokens(name: str) -> None:
    predictor, given = made(name)
    (tokens,) = predictor.encode_tokens([given])
    batch = [tokens, tokens.without({1, 2})]
    together = token_gradients(predictor, batch, [0, 1]).calls
    for n, each in enumerate(batch):
        alone = token_gradients(predictor, [each], [n]).calls
        (cells,) = predictor.vector_places([each])
        for field in ("gradient", "vectors"):
            expected = at_places([getattr(call, field) for call in alone], cells)
            found = at_places([getattr(call, field) for call in together], predictor.vector_places(batch)[n])
            assert len(expected) == len(each)
            torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", STACKS)
def test_masked_keys_are_absent_keys(name: str) -> None:
    """Zero weight for a key, and the rest of each row scaled to one, by hand."""
    predictor, given = made(name)
    (tokens,) = predictor.encode_tokens([given])
    whole = float(logits_of(predictor, [tokens])[0, 0])
    scores = regard.attribute(predictor, given, 0, "masked-keys").scores

    def without_second(weights: torch.Tensor, allowed: torch.Tensor | None) -> torch.Tensor:
        kept = weights.clone()
        kept[..., 2] = 0
        return kept / kept.sum(-1, keepdim=True)

    with regard.intervene(predictor.model, without_second):
        logits = logits_of(predictor, [tokens])
    assert float(scores[2]) == pytest.approx(whole - float(logits[0, 0]), abs=1e-5)


# the two directions of ESIM are one score matrix, which is named, not replaced
@pytest.mark.filterwarnings("ignore:intervene kept the weights of 'matcher.attention'")
@pytest.mark.parametrize("name", ["encoder", "transformers", "self-attentive", "esim"])
def test_a_map_replaced_by_itself_changes_nothing(name: str) -> None:
    predictor, given = made(name)
    tokens = predictor.encode_tokens([given])
    own = logits_of(predictor, tokens)
    with regard.intervene(predictor.model, lambda weights, allowed: weights):
        torch.testing.assert_close(logits_of(predictor, tokens), own, atol=1e-6, rtol=1e-5)
    with regard.intervene(predictor.model, uniform):
        assert not torch.allclose(logits_of(predictor, tokens), own, atol=1e-5)


def test_no_masked_key_changes_nothing() -> None:
    predictor, given = made("encoder")
    tokens = predictor.encode_tokens([given])
    with regard.intervene(predictor.model, WithoutKeys(torch.ones(1, len(tokens[0]), dtype=torch.bool))):
        masked = logits_of(predictor, tokens)
    torch.testing.assert_close(masked, logits_of(predictor, tokens))


def test_masked_keys_of_any_normalizer() -> None:
    """Sparsemax spreads the weight of a masked key by its scores, not in proportion."""
    torch.manual_seed(0)
    layer = regard.Attention(regard.Dot(), normalize=regard.Sparsemax())
    q, k = torch.randn(2, 3, 5), torch.randn(2, 4, 5)
    keys = torch.ones(2, 4, dtype=torch.bool)
    keys[:, 1] = False
    with regard.intervene(layer, WithoutKeys(keys)):
        out = layer(q, k)
    torch.testing.assert_close(out, layer(q, k[:, [0, 2, 3]]))


def test_the_likeliest_class_is_the_target_where_none_is_named() -> None:
    predictor, given = made("esim")
    logits = logits_of(predictor, predictor.encode_tokens([given]))[0]
    assert regard.attribute(predictor, given, method="gradient").target == CLASSES[int(logits.argmax())]
    assert explained_logit(predictor, given, None).target == int(logits.argmax())


def test_a_ranking_leaves_special_tokens_out() -> None:
    predictor, given = made("encoder")
    result = regard.attribute(predictor, given, 0, "attention")
    order = result.ranking()
    assert sorted(order) == [n for n, special in enumerate(result.is_special) if not special]
    assert all(result.scores[a] >= result.scores[b] for a, b in pairwise(order))
    assert math.isfinite(result.output)
