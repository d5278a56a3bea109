"""Each refusal of an attack on texts is one sentence with a way out."""

import re
from collections.abc import Callable

import pytest
from tests.attacks.models import images, network
from tests.attacks.text.victims import TEXTS, BagPredictor
from tests.for_each import for_each
from torch import nn

import regard
from regard.attacks import (
    PGD,
    CharacterEdits,
    CosineSimilarity,
    EditDistance,
    ForbiddenWord,
    HotFlip,
    TargetWord,
    Triggers,
)

BAG, SHORT = BagPredictor(), BagPredictor()
SHORT.longest = 2
MODEL = network()
X, Y = images(MODEL)


class Counts(BagPredictor):
    """A predictor whose model has no embedding."""

    @property
    def embedding(self) -> nn.Module | None:
        return None


NO_VECTORS = (
    " compares vectors of tokens, and Bag has no embedding of tokens; use CharacterEdits(), the attack characters, "
    "which needs none"
)
REFUSALS: dict[str, Callable[[], object]] = {
    "k must be a whole number, 1 or more, for HotFlip, got 0; try k=8": lambda: HotFlip(k=0),
    "k must be a whole number, 1 or more, for Triggers, got None; try k=8": lambda: Triggers(k=None),
    "beam must be a whole number, 1 or more, for CharacterEdits, got 0; try beam=8": lambda: CharacterEdits(beam=0),
    "words must be a whole number, 1 or more, for Triggers, got 0; try words=8": lambda: Triggers(words=0),
    "flips must be a whole number, 0 or more, for HotFlip, got -1; try flips=1": lambda: HotFlip(flips=-1),
    "edits must be a whole number, 0 or more, for CharacterEdits, got 1.5; try edits=1": lambda: CharacterEdits(
        edits=1.5
    ),
    "constraints must be a Constraint, got 'cosine'; write constraints=(regard.attacks.SameStart(),)": lambda: HotFlip(
        constraints=("cosine",)
    ),
    "least must be a cosine, from -1 to 1, got 2; try least=0.5": lambda: CosineSimilarity(2.0),
    "edits must be a whole number, 1 or more, for EditDistance, got 0; try edits=8": lambda: EditDistance(0),
    "word must be one word for TargetWord, got 'two words'; give one without spaces": lambda: TargetWord("two words"),
    "word must be one word for ForbiddenWord, got ''; give one without spaces": lambda: ForbiddenWord(""),
    "PGD changes pixels, and BagPredictor reads texts; use regard.attacks.HotFlip(flips=3)": lambda: regard.attack(
        BAG, TEXTS, None, PGD()
    ),
    "HotFlip edits texts, and model must be a predictor of texts, got Sequential; load a run by regard.load, wrap "
    "a module of transformers in regard.attribution.TransformersClassifier, or use regard.attacks.PGD(eps=0.1) for "
    "images": lambda: regard.attack(MODEL, X, Y, HotFlip()),
    f"HotFlip{NO_VECTORS}": lambda: regard.attack(Counts(), TEXTS, None, HotFlip()),
    f"Triggers{NO_VECTORS}": lambda: regard.attack(Counts(), TEXTS, None, Triggers()),
    "inputs must be a list of texts, one at least, got 'a b'; write [text]": lambda: regard.attack(
        BAG, "a b", None, HotFlip()
    ),
    "inputs must be a list of texts, one at least, got []; write [text]": lambda: regard.attack(
        BAG, [], None, HotFlip()
    ),
    "inputs must be texts with a token at least, and text 2 is ' '; leave it out": lambda: regard.attack(
        BAG, ["a", " "], None, HotFlip()
    ),
    "inputs must be texts that the model reads whole, and text 2 is too long; shorten it": lambda: regard.attack(
        SHORT, ["a", "a b c"], None, HotFlip()
    ),
    "targets must be one per text, got 1 for 10 texts; leave them out, and the predictions of the model are "
    "taken": lambda: regard.attack(BAG, TEXTS, ["x"], HotFlip()),
    "unknown target 'w'; known are: x, y, z": lambda: regard.attack(BAG, ["a"], ["w"], HotFlip()),
}


@for_each("sentence", REFUSALS)
def test_refusals(sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{re.escape(sentence)}$"):
        REFUSALS[sentence]()


def test_a_model_without_embeddings_is_misspelled() -> None:
    assert regard.attack(Counts("ab cd"), ["ab cd"], None, CharacterEdits(k=9)).queries.sum() > 2


def test_a_gradient_of_zero_is_a_warning() -> None:
    class Detached(BagPredictor):
        def logits(self, texts):  # type: ignore[no-untyped-def]
            return super().logits(texts).detach()

    result = regard.attack(Detached(), TEXTS, None, HotFlip(k=2))
    assert result.warnings == (
        "the gradient of 10 texts of 10 is zero, so it cannot lead an attack; the result may overrate the model; use "
        "HotFlip(k=None), which evaluates every flip, or CharacterEdits(), which uses no gradient",
    )
    assert not regard.attack(BagPredictor(), TEXTS, None, HotFlip(k=2)).warnings
