"""Attributions of tags and of words of translations: by every method, against sums over all outputs."""

from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.attribution.structured import LINES, SENTENCE, STRUCTURED, TAGS, made_structured
from tests.for_each import for_each

import regard
from regard.attribution import METHODS
from regard.attribution.attribute import explained_logit
from regard.data.text.tokenizer import Tokenizer
from regard.inference.structured_predictor import OTHER, find_words
from regard.tasks.tag.explained_tags import tag_target
from regard.tasks.translate.explained_words import word_steps
from regard.tasks.translate.vocabularies import Vocabularies

# every method on a model that reads sub-words and on one that attends to two texts; of the others what they add: states
# that are no tokens, a gradient through a loop, rows of words without a CRF
EXPLAINED = [
    *product(["encoder tagger", "transformer translator"], METHODS),
    *product(["recurrent tagger", "recurrent translator"], ["masked-keys", "gradient"]),
    ("transformer tagger", "relevance"),
]


@for_each(("name", "method"), EXPLAINED, share=0.5)
def test_every_method_scores_every_token(name: str, method: str) -> None:
    predictor, text, target = made_structured(name)
    result = regard.attribute(predictor, text, target, method)
    assert result.scores.shape == (len(result.tokens),)
    assert result.scores.isfinite().all()
    assert result.scores.any()
    assert 0 < result.probability < 1
    assert result.output == pytest.approx(torch.logit(torch.tensor(result.probability, dtype=torch.float64)).item())


@pytest.mark.parametrize("name", STRUCTURED)
def test_leave_one_out_equals_the_text_without_the_word(name: str) -> None:
    predictor, text, target = made_structured(name)
    explained = explained_logit(predictor, text, target)
    result = regard.attribute(predictor, text, target, "leave-one-out")
    for place in explained.tokens.words:
        alone = explained.outputs([explained.tokens.without({place})])[0]
        assert float(result.scores[place]) == pytest.approx(float(explained.output - alone), abs=1e-5)


@pytest.mark.parametrize("name", ["recurrent tagger", "transformer tagger"])
@pytest.mark.parametrize("target", ["New York=city", "Rome=B-city", "to#2=O"])
def test_the_odds_of_tags_are_those_of_all_sequences(name: str, target: str) -> None:
    predictor: Any = made_structured(name).predictor
    words = tuple(SENTENCE.split())
    asked = tag_target(predictor, words, target)
    with torch.no_grad():
        (emissions,) = predictor.model(predictor.encoder.inputs([words])).emissions.double()
        potentials = [each.double() for each in predictor.model.potentials(emissions[None].float())]
    has, others = [], []
    for path in product(range(len(TAGS)), repeat=len(words)):
        score = sum(emissions[i, tag] for i, tag in enumerate(path)) + potentials[1][path[0]] + potentials[2][path[-1]]
        score = score + sum(potentials[0][a, b] for a, b in pairwise(path))
        is_asked = all(TAGS[path[n]] == tag for n, tag in zip(asked.places, asked.tags, strict=True))
        (has if is_asked else others).append(score)
    expected = torch.stack(has).logsumexp(0) - torch.stack(others).logsumexp(0)
    result = regard.attribute(predictor, SENTENCE, target, "leave-one-out")
    assert result.output == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize("name", ["recurrent translator", "transformer translator"])
def test_the_odds_of_words_are_those_of_the_steps(name: str) -> None:
    translator: Any
    translator, text, target = made_structured(name)
    ((best, *_),) = translator.translate([text])
    whole = regard.attribute(translator, text, None, "leave-one-out")
    assert whole.target == best.text
    assert whole.probability == pytest.approx(float(torch.tensor(best.log_prob).exp()), rel=1e-4)
    word = regard.attribute(translator, text, target, "leave-one-out")
    assert word.target == target
    assert word.probability > whole.probability


def test_words_are_found_in_translations() -> None:
    letters = Tokenizer.train("characters", ["ab cd ab"], 20)
    (ids,) = letters.encode(["ab cd ab"])
    translator: Any = SimpleNamespace(vocabularies=Vocabularies(letters, letters))
    translation: Any = SimpleNamespace(text="ab cd ab", with_eos=[*ids, letters.special.eos])
    assert word_steps(translator, translation, "cd") == ("cd", (3, 4))
    assert word_steps(translator, translation, "ab#2") == ("ab", (6, 7))
    assert word_steps(translator, translation, "ab cd").steps == (0, 1, 2, 3, 4)
    assert word_steps(translator, translation, "c").steps == (3,)
    assert word_steps(translator, translation, None).steps == tuple(range(9))


@pytest.mark.parametrize("name", STRUCTURED)
def test_words_that_are_left_out_change_nothing_else(name: str) -> None:
    """Batched variants equal single ones; the text that lost all its words still has the part."""
    predictor, text, target = made_structured(name)
    explained = explained_logit(predictor, text, target)
    words = explained.tokens.words
    variants = [explained.tokens.without(set(places)) for places in ([words[0]], words[1:3], words)]
    together = explained.logits(variants)
    torch.testing.assert_close(together, torch.cat([explained.logits([each]) for each in variants]), atol=1e-5, rtol=0)
    assert explained.classifier.classes[1] == OTHER


def test_targets_of_a_tagger() -> None:
    predictor: Any = made_structured("recurrent tagger").predictor
    words = tuple(SENTENCE.split())
    assert tag_target(predictor, words, "New York=city")[:2] == ((2, 3), ("B-city", "I-city"))
    assert tag_target(predictor, words, "Rome=city")[:2] == ((6,), ("B-city",))
    assert tag_target(predictor, words, "Rome=O") == ((6,), ("O",), "Rome: O")
    assert tag_target(predictor, words, "to#2=O").places == (5,)
    predicted = predictor.tag_words([words])[0].tags
    assert tag_target(predictor, words, "fly to").tags == tuple(predicted[:2])


@for_each(
    ("target", "message"),
    [
        (
            "Paris=city",
            r"unknown target in the text 'Paris'; name neighbouring words of: fly, to, New, York, and, Rome",
        ),
        ("Rome=town", r"unknown tag of the target 'town'; known are: O, B-city, I-city, city"),
        ("New York=B-city", r"unknown tag of the target 'B-city'; did you mean 'city'\?"),
        ("to#3=O", r"the target 'to#3' is not there: 'to' occurs 2 times in the text; name 'to'"),
        ("New Rome", r"unknown target in the text 'New Rome'"),
        (3, r"target must name a part of the output, got 3; write words of it"),
        ("fly=I-city", "'fly=I-city' has the probability 0 in every text, so no word explains it; name another one$"),
    ],
)
def test_bad_targets_of_a_tagger(target: Any, message: str) -> None:
    predictor, text, _ = made_structured("recurrent tagger")
    with pytest.raises((ValueError, TypeError), match=message):
        regard.attribute(predictor, text, target)


def test_bad_inputs() -> None:
    tagger: Any = made_structured("recurrent tagger").predictor
    with pytest.raises(ValueError, match="the text ' ' has no words, so there is nothing to explain"):
        regard.attribute(tagger, " ")
    translator = made_structured("recurrent translator").predictor
    with pytest.raises(ValueError, match=r"unknown target in the translation '.*' 'zzz'; name neighbouring words of: "):
        regard.attribute(translator, LINES[0], "zzz")
    with pytest.raises(ValueError, match="the text ' ' has no words, so there is nothing to explain"):
        regard.attribute(translator, " ")


def test_no_span_and_no_target() -> None:
    tagger: Any = made_structured("recurrent tagger").predictor
    tagger.model.emission.bias.data[0] += 100  # every word is outside
    sentence = "so a target must be named: words of the text, or words and a tag, such as fly=O$"
    with pytest.raises(ValueError, match=f"^the model finds no span in this text, {sentence}"):
        regard.attribute(tagger, SENTENCE)


def test_faithfulness_is_of_classifiers() -> None:
    tagger: Any = made_structured("recurrent tagger").predictor
    sentence = "got TagPredictor, whose outputs have parts; explain one of them by regard.attribute$"
    with pytest.raises(TypeError, match=f"^predictor must classify texts or pictures, {sentence}"):
        regard.faithfulness(tagger, SENTENCE)


def test_find_words() -> None:
    with pytest.raises(ValueError, match=r"unknown target in the text 'c d'; name neighbouring words of: a, b, c"):
        find_words("c d", ["a", "b", "c"], "the text")
    words = ["fly", "to", "New", "York", *(f"word{n}" for n in range(60))]
    with pytest.raises(ValueError, match=r" 'New Yrk'; did you mean 'New York'\? name .* of: fly, .* and 54 more$"):
        find_words("New Yrk", words, "the text")
    with pytest.raises(ValueError, match=r" 'flyy#2'; did you mean 'fly'\? "):
        find_words("flyy#2", words, "the text")
    assert find_words("b c", ["a", "b", "c"], "the text") == (1, 2)
    assert find_words("a#2", ["a", "b", "a"], "the text") == (2,)
    assert find_words("a#2", ["a#2", "b", "a"], "the text") == (0,)
