"""Faithfulness: its numbers by plain loops, and what other attention does to an output."""

import math
from dataclasses import replace
from typing import Any

import pytest
import scipy.stats
import torch
from tests.attribution.classifiers import CLASSIFIERS, EMBEDDED, made
from tests.for_each import for_each
from tests.product import first
from torch import Tensor, nn

import regard
from regard.attribution import METHODS, REMOVALS
from regard.attribution.adversarial_map import GivenMaps, adversarial_map, divergence
from regard.attribution.attribute import explained_logit
from regard.attribution.faithfulness import SHARES, AttentionTest, faithfulness, kendall

FAST = ["attention", "gradient", "leave-one-out"]


def probability(predictor: Any, tokens: Any, target: int) -> float:
    with torch.no_grad():
        return float(predictor.token_logits([tokens])[0].double().softmax(-1)[target])


@pytest.mark.parametrize("name", ["encoder", "esim"])
def test_removal_scores_are_those_of_a_loop(name: str) -> None:
    predictor, given = made(name)
    (measured,) = faithfulness(predictor, given, "bad", ["leave-one-out"]).inputs
    (tokens,) = predictor.encode_tokens([given])
    order = measured.attributions["leave-one-out"].ranking()
    own = probability(predictor, tokens, 1)
    without, alone = [], []
    for share in SHARES:
        count = max(1, round(share * len(order)))
        without.append(own - probability(predictor, tokens.without(order[:count]), 1))
        alone.append(own - probability(predictor, tokens.without(order[count:]), 1))
    scores = measured.scores["leave-one-out"]
    assert scores.comprehensiveness == pytest.approx(sum(without) / len(SHARES), abs=1e-6)
    assert scores.sufficiency == pytest.approx(sum(alone) / len(SHARES), abs=1e-6)
    assert len(measured.removed) == len(scores.curve) == len(order) + 1
    for n, p in enumerate(scores.curve):
        assert p == pytest.approx(probability(predictor, tokens.without(order[:n]), 1), abs=1e-6)
    # a random order starts and ends where every order does
    for curve in (measured.random.curve, *measured.band):
        assert curve[0] == pytest.approx(own, abs=1e-6)
        assert curve[-1] == pytest.approx(scores.curve[-1], abs=1e-6)
    assert all(low <= high for low, high in zip(*measured.band, strict=True))


@pytest.mark.parametrize("removal", REMOVALS)
def test_nothing_removed_changes_nothing(removal: str) -> None:
    predictor, given = made("encoder")
    explained = explained_logit(predictor, given, 0)
    torch.testing.assert_close(
        REMOVALS[removal](explained, [set(), set()])[1], explained.input_logits, atol=1e-6, rtol=0
    )
    assert not torch.allclose(REMOVALS[removal](explained, [{1, 2}])[0], explained.input_logits, atol=1e-4)


@for_each("name", EMBEDDED)
def test_all_padded_is_the_baseline_of_integrated_gradients(name: str) -> None:
    predictor, given = made(name)
    explained = explained_logit(predictor, given, 0)
    (logits,) = REMOVALS["pad"](explained, [set(explained.tokens.words)])
    completeness = regard.attribute(predictor, given, 0).completeness
    assert float(explained.output - logits[0]) == pytest.approx(completeness.difference, abs=1e-5)


def test_agreement_is_that_of_scipy() -> None:
    torch.manual_seed(0)
    first, second = torch.randn(11), torch.randint(0, 4, (11,)).float()
    expected = scipy.stats.kendalltau(first.numpy(), second.numpy()).statistic
    assert kendall(first, second) == pytest.approx(expected)
    assert kendall(first, first) == pytest.approx(1)
    assert kendall(first, -first) == pytest.approx(-1)
    assert kendall(first, torch.ones(11)) == 0


def test_methods_that_do_not_apply_are_named() -> None:
    (measured,) = faithfulness(*made("bag")).inputs
    assert set(measured.attributions) == {"leave-one-out"}
    assert set(measured.skipped) == {*METHODS} - {"leave-one-out"}
    assert measured.sentence == (
        "The attention of this model was not measured: BagOfWords attends to no tokens, so its attention explains "
        "nothing; use the method leave-one-out."
    )
    (measured,) = faithfulness(*made("encoder"), methods=["gradient"]).inputs
    assert measured.sentence == "The attention of this model was not measured: it is not among the methods."


def test_a_report_has_the_means_of_its_inputs() -> None:
    predictor, given = made("self-attentive")
    report = faithfulness(predictor, [given, "a bad film was long"], "odd", FAST)
    single = [faithfulness(predictor, text, "odd", FAST) for text in (given, "a bad film was long")]
    assert report.methods == FAST
    for name in FAST:
        for number in (type(report).comprehensiveness, type(report).sufficiency):
            assert number(report, name) == pytest.approx(sum(number(each, name) for each in single) / 2)
        taus = [tau for each in single if (tau := each.agreement(name, "attention")) is not None]
        assert report.agreement(name, "attention") == pytest.approx(sum(taus) / 2)
    shares = [each.adversarial_share for each in single]
    assert report.adversarial_share == sum(share for share in shares if share is not None) / 2
    assert faithfulness(*made("bag")).adversarial_share is None


def test_a_text_of_one_word_has_no_rankings() -> None:
    predictor, given = made("self-attentive")
    report = faithfulness(predictor, "good", "odd", FAST)
    assert report.agreement(FAST[0], FAST[1]) is None
    assert "a single word has one order, so no rankings can be compared" in report.inputs[0].sentence
    assert "τ" not in report.inputs[0].sentence
    # beside a longer text, the mean is that of the longer one
    both, longer = (faithfulness(predictor, texts, "odd", FAST) for texts in (["good", given], [given]))
    assert both.agreement(FAST[0], FAST[1]) == longer.agreement(FAST[0], FAST[1])


def test_bad_input() -> None:
    predictor, given = made("encoder")
    with pytest.raises(
        ValueError, match=r"^unknown removal 'deleet'; did you mean 'delete'\? known are: delete, mask-keys, pad$"
    ):
        faithfulness(predictor, given, removal="deleet")
    with pytest.raises(ValueError, match=r"^unknown method 'rolout'; did you mean 'rollout'\?"):
        faithfulness(predictor, given, methods=["rolout"])
    for methods in ("rollout", []):
        with pytest.raises(ValueError, match=r"^methods must be a list of names, one at least, got ") as caught:
            faithfulness(predictor, given, methods=methods)
        assert str(caught.value).endswith(f"got {methods!r}; leave it out for all")
    with pytest.raises(
        ValueError, match=r"^inputs must hold at least one input, got none; give a list of texts or pictures$"
    ):
        faithfulness(predictor, [])
    with pytest.raises(ValueError, match=r"^BagOfWords has no vectors of tokens"):
        faithfulness(*made("bag"), methods=["gradient"])


@pytest.mark.parametrize("name", first(["encoder", "self-attentive", "esim", "transformers", "hierarchical"], 3))
def test_another_map_keeps_the_output(name: str) -> None:
    predictor, given = made(name)
    explained = explained_logit(predictor, given, None)
    found = adversarial_map(explained, steps=60, tolerance=0.02)
    own = explained.input_logits.softmax(-1)
    with torch.no_grad(), regard.intervene(predictor.model, found.replacement(), layers=found.layer):
        other = predictor.token_logits([explained.tokens])[0].double().softmax(-1)
    change = float((other - own).abs().sum() / 2)
    assert change == pytest.approx(found.change, abs=1e-5)
    assert change <= 0.02
    assert 0.05 < found.distance <= math.log(2)
    for weights in found.weights:
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-5, rtol=0)


def test_a_model_whose_output_is_its_weights_has_no_other_map() -> None:
    """One query, values that tell the keys apart, and no tolerance: only the own weights keep the output."""
    predictor, given = CLASSIFIERS["self-attentive"]()
    explained = explained_logit(predictor, given, None)
    found = adversarial_map(explained, steps=3, tolerance=0.0)
    assert (found.distance, found.change) == (0.0, 0.0)
    with torch.no_grad(), regard.intervene(predictor.model, found.replacement(), layers=found.layer):
        other = predictor.token_logits([explained.tokens])[0].double()
    torch.testing.assert_close(other, explained.input_logits, atol=1e-5, rtol=0)


def test_the_divergence_is_bounded() -> None:
    first, second = torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([[0.0, 1.0], [0.5, 0.5]])
    torch.testing.assert_close(divergence(first, second), torch.tensor([math.log(2), 0.0]))


def test_given_maps_are_those_of_the_calls_in_turn() -> None:
    maps = GivenMaps([torch.full((1, 2, 3), 0.5), torch.zeros(1, 1, 3)])
    assert [float(maps(torch.ones(4, n, 3), None).sum()) for n in (2, 1, 2)] == [12.0, 0.0, 12.0]


@pytest.mark.parametrize(
    ("distance", "comprehensiveness", "tau", "start"),
    [
        (0.6, 0.0, 0.9, "Do not read the attention of this model as an explanation here: removing"),
        (0.6, 0.5, 0.9, "Read the attention of this model with caution here: removing"),
        (0.1, 0.5, 0.2, "Read the attention of this model with caution here: removing"),
        (0.1, 0.5, 0.9, "The attention of this model is a fair guide here: removing"),
    ],
)
def test_the_verdict(distance: float, comprehensiveness: float, tau: float, start: str) -> None:
    (measured,) = faithfulness(*made("self-attentive"), methods=FAST).inputs
    measured = replace(
        measured,
        scores={
            **measured.scores,
            "attention": replace(measured.scores["attention"], comprehensiveness=comprehensiveness),
        },
        random_comprehensiveness=0.1,
        agreement={**measured.agreement, ("attention", "leave-one-out"): tau},
        attention=AttentionTest(0.0, 0.0, replace(measured.attention.adversarial, distance=distance)),
    )
    assert measured.sentence.startswith(start)
    assert f"by τ = {tau:.2f}; the most different map that keeps the output is {distance:.2f} away" in measured.sentence


def test_intervene_names_layers_as_recordings_do() -> None:
    """Layers that a model calls by `attend` have names, too."""
    predictor, given = made("hierarchical")
    (tokens,) = predictor.encode_tokens([given])

    def logits() -> Tensor:
        with torch.no_grad():
            return predictor.token_logits([tokens])

    own = logits()
    with regard.intervene(predictor.model, regard.interop.uniform, layers="sentence_attention.*") as one:
        changed = logits()
    assert one.calls == {"sentence_attention.attention": 1}
    assert not torch.allclose(own, changed, atol=1e-5)
    with regard.intervene(predictor.model, regard.interop.uniform) as both:
        logits()
    assert both.calls == {"word_attention.attention": 1, "sentence_attention.attention": 1}
    assert isinstance(predictor.model, nn.Module)
