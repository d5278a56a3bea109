"""Laws of attacks on texts; those of all run over TEXT_ATTACKS: an attack is tested by being listed."""

import copy
from itertools import pairwise

import pytest
import torch
from tests.attacks.text.victims import TEXTS, BagPredictor, exhaustive, flipped, victim

import regard
from regard.attacks import (
    TEXT_ATTACKS,
    CharacterEdits,
    CosineSimilarity,
    EditDistance,
    HotFlip,
    TextAttack,
    Triggers,
)
from regard.attacks.text.constraints import edit_distances
from regard.attacks.text.hotflip import flip_gains
from regard.common.eval_mode import eval_mode
from regard.inference.edited_text import EditedText

SMALL: dict[str, TextAttack] = {
    "hotflip": HotFlip(flips=2, k=5, beam=2),
    "triggers": Triggers(words=2, k=3, rounds=2, batch=5),
    "characters": CharacterEdits(edits=2, k=9, beam=2),
}
NAMES = list(TEXT_ATTACKS)
WORDS = "ab cd ba dab cad bee abc"
LONG = ["ab cd ba", "dab dab", "cad bee abc ab", "bee", "cd ab", "abc cad", "ba ba cd ab"]


def values(result: regard.attacks.TextAttackResult) -> list[object]:
    """All that a result says, but for the queries."""
    return [result.inputs, *(t.tolist() for t in (result.was_broken, result.broken, result.loss, result.distance))]


def test_every_attack_has_a_small_form() -> None:
    assert SMALL.keys() == TEXT_ATTACKS.keys()


@pytest.mark.parametrize("attack", [HotFlip(flips=0), CharacterEdits(edits=0)])
def test_no_step_is_the_clean_text(attack: TextAttack) -> None:
    predictor = BagPredictor()
    with eval_mode(predictor.model):
        labels = predictor.attack_targets(TEXTS, None)
    wrong = ["xyz"[(n + (i < 3)) % 3] for i, n in enumerate(labels)]
    result = regard.attack(predictor, TEXTS, wrong, attack)
    assert result.texts == TEXTS
    assert not result.distance.any()
    assert torch.equal(result.broken, torch.arange(10) < 3)
    assert result.accuracy == result.clean_accuracy == pytest.approx(100 * 7 / 10)


@pytest.mark.parametrize("name", NAMES)
def test_broken_texts_are_read_as_another_class(name: str) -> None:
    predictor = BagPredictor(WORDS)
    result = regard.attack(predictor, LONG, None, SMALL[name])
    assert result.broken.any()
    assert not result.was_broken.any()
    with eval_mode(predictor.model):
        again = predictor.logits(result.texts).argmax(1)
        labels = predictor.logits(LONG).argmax(1)
    assert torch.equal(again != labels, result.broken)
    for clean, edited, broken, distance in zip(LONG, result.inputs, result.broken, result.distance, strict=True):
        assert edited.original == clean
        assert bool(edited.edits) == bool(broken) == bool(distance)


# one trigger belongs to all texts of a batch
@pytest.mark.parametrize("name", [name for name in NAMES if name != "triggers"])
def test_a_batch_is_attacked_as_its_texts_alone(name: str) -> None:
    predictor = BagPredictor(WORDS)
    whole = regard.attack(predictor, LONG, None, SMALL[name], seed=3)
    for n, text in enumerate(LONG):
        alone = regard.attack(predictor, [text], None, SMALL[name], seed=3, first=n, batch=1)
        assert alone.inputs == whole.inputs[n : n + 1]
        assert torch.equal(alone.broken, whole.broken[n : n + 1])
        assert torch.equal(alone.queries, whole.queries[n : n + 1])


@pytest.mark.parametrize("name", NAMES)
def test_texts_per_pass_change_nothing_and_are_kept(name: str) -> None:
    predictor = BagPredictor(WORDS)
    whole = regard.attack(predictor, LONG, None, SMALL[name])
    predictor.batches.clear()
    parts = regard.attack(predictor, LONG, None, SMALL[name], batch=2)
    # but for the predictions that are the targets
    assert max(predictor.batches[1:]) == 2
    assert parts.inputs == whole.inputs
    torch.testing.assert_close(parts.loss, whole.loss)


@pytest.mark.parametrize("name", NAMES)
def test_one_seed_is_one_result(name: str) -> None:
    predictor = BagPredictor(WORDS)
    first, second = (regard.attack(predictor, LONG, None, SMALL[name], seed=5) for _ in range(2))
    assert values(first) == values(second)
    assert torch.equal(first.queries, second.queries)


def test_another_seed_misspells_otherwise() -> None:
    results = [regard.attack(BagPredictor(WORDS), LONG, None, SMALL["characters"], seed=n) for n in range(2)]
    assert results[0].texts != results[1].texts


@pytest.mark.parametrize("name", NAMES)
def test_the_model_stays_as_it_is(name: str) -> None:
    predictor = BagPredictor(WORDS)
    model = predictor.model
    model.output.eval()
    predictor.logits(LONG).sum().backward()
    before, gradients = copy.deepcopy(model), [p.grad.clone() for p in model.parameters() if p.grad is not None]
    state = torch.get_rng_state()
    regard.attack(predictor, LONG, None, SMALL[name])
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in model.modules()] == [module.training for module in before.modules()]
    assert not model.embedding._forward_hooks
    for p, old, gradient in zip(model.parameters(), before.parameters(), gradients, strict=True):
        assert torch.equal(p, old)
        assert torch.equal(p.grad, gradient)


# HotFlip


@pytest.mark.parametrize("flips", [1, 2])
@pytest.mark.parametrize("is_linear", [True, False])
def test_every_flip_evaluated_is_exhaustive_search(flips: int, is_linear: bool) -> None:
    predictor = BagPredictor(is_linear=is_linear, seed=11)
    predictor.model.eval()
    result = flipped(predictor, flips=flips, k=None, beam=10**6)
    assert result.broken.tolist() == [exhaustive(predictor, text, flips) for text in TEXTS]
    assert 0 < result.broken.sum() < len(TEXTS)
    # and the best by gradient are among them
    best = flipped(predictor, flips=flips, k=3, beam=2)
    assert not (best.broken & ~result.broken).any()
    assert best.queries.sum() < result.queries.sum()


def test_the_gain_of_a_linear_model_is_the_difference_of_its_losses() -> None:
    predictor = BagPredictor(is_linear=True)
    predictor.model.eval()
    of = victim(predictor)
    for text in TEXTS:
        (label,) = predictor.attack_targets([text], None)
        places, gradient = of.gradient(EditedText(text), label)
        gains = flip_gains(of.vectors("HotFlip"), gradient, [place.token for place in places])
        with torch.no_grad():
            logits = predictor.logits([text])[0]
            best_other = max((n for n in range(3) if n != label), key=lambda n: float(logits[n]))
            for i, place in enumerate(places):
                for v, word in enumerate(predictor.words, 2):
                    new = predictor.logits([EditedText(text).replace(place.start, place.end, word).text])[0]
                    # the margin to the class that is next now, which is linear
                    change = (new[best_other] - new[label]) - (logits[best_other] - logits[label])
                    torch.testing.assert_close(gains[i, v], change)


def test_more_flips_are_never_weaker() -> None:
    predictor = BagPredictor(WORDS, seed=2)
    results = [flipped(predictor, LONG, flips=n, k=4, beam=2) for n in range(4)]
    for fewer, more in pairwise(results):
        assert not (fewer.broken & ~more.broken).any()
        # a text that fewer flips broke is broken by the same ones
        for n in fewer.broken.nonzero().flatten().tolist():
            assert more.inputs[n] == fewer.inputs[n]
    assert results[0].broken.sum() < results[-1].broken.sum()


def test_a_larger_k_is_never_weaker_by_one_flip() -> None:
    # its candidates are those of a smaller k and more; with several flips the beam of more candidates may go elsewhere
    predictor = BagPredictor(WORDS, seed=2)
    results = [flipped(predictor, LONG, flips=1, k=k) for k in (1, 2, 5, None)]
    for fewer, more in pairwise(results):
        assert not (fewer.broken & ~more.broken).any()
    assert results[0].broken.sum() < results[-1].broken.sum()


def test_padding_special_tokens_and_places_flipped_before_are_never_chosen() -> None:
    predictor = BagPredictor()
    result = flipped(predictor, ["a b", "q b q"], flips=3, k=None, beam=50)
    for edited in result.inputs:
        assert all(edited.text[edit.start : edit.end] in predictor.words for edit in edited.edits)
        assert len(edited.edits) <= len(edited.text.split())
    # a flip of every place of a text is all there is
    assert (result.distance <= torch.tensor([2, 3])).all()


def test_padded_places_have_no_gradient() -> None:
    predictor = BagPredictor()
    read = victim(predictor).gradient(EditedText("a b"), 0)
    assert [place.token for place in read.places] == [2, 3]
    assert read.gradient.any(1).all()


def test_constraints_hold() -> None:
    predictor = BagPredictor(WORDS, seed=2)
    weight = predictor.model.embedding.weight
    near = flipped(predictor, LONG, flips=2, constraints=(EditDistance(1),))
    alike = flipped(predictor, LONG, flips=2, constraints=(CosineSimilarity(0.2),))
    assert near.broken.any()
    assert alike.broken.any()
    for edited in near.inputs:
        for edit in edited.edits:
            assert edit_distances(edit.before, [edited.text[edit.start : edit.end]]) == [1]
    for edited in alike.inputs:
        for edit in edited.edits:
            pair = [2 + predictor.words.index(w) for w in (edit.before, edited.text[edit.start : edit.end])]
            assert torch.cosine_similarity(*weight[pair], dim=0) >= 0.2


def test_edit_distances() -> None:
    words = ["", "kitten", "sitting", "kit", "tik", "kittens"]
    assert edit_distances("kitten", words).tolist() == [6, 0, 3, 3, 5, 1]


def test_texts_that_are_all_wrong_are_a_warning() -> None:
    predictor = BagPredictor(seed=2)
    with eval_mode(predictor.model):
        wrong = ["xyz"[(n + 1) % 3] for n in predictor.attack_targets(TEXTS, None)]
    assert regard.attack(predictor, TEXTS, wrong, HotFlip()).warnings == (
        "every text is wrong before the attack, so none was attacked; give other texts or targets",
    )


# Triggers


@pytest.mark.parametrize("attack", [HotFlip(1, None), Triggers(1, 3)])
def test_a_word_that_is_read_as_two_is_counted_apart(attack: TextAttack) -> None:
    # "c-d" is a word of the vocabulary that is read as three words
    result = regard.attack(BagPredictor("a b c-d", seed=4), ["a b", "b a a", "a", "b b"], None, attack)
    assert result.is_reread.any()
    assert result.is_reread.tolist() == ["c-d" in text for text in result.texts]


def test_a_trigger_is_shared_by_the_texts_of_a_class() -> None:
    predictor = BagPredictor(WORDS, seed=3)
    result = regard.attack(predictor, LONG, None, Triggers(words=2, k=7, batch=3))
    with eval_mode(predictor.model):
        labels = predictor.logits(LONG).argmax(1).tolist()
    found: dict[int, set[str]] = {}
    for label, edited in zip(labels, result.inputs, strict=True):
        for edit in edited.edits:
            assert (edit.start, edit.before) == (0, "")
            found.setdefault(label, set()).add(edited.text[: edit.end])
    assert found
    assert all(len(triggers) == 1 for triggers in found.values())


def test_a_trigger_of_one_word_is_the_best_of_all_words() -> None:
    predictor = BagPredictor(WORDS, seed=3)
    predictor.model.eval()
    labels = predictor.attack_targets(LONG, None)
    texts, label = [text for text, n in zip(LONG, labels, strict=True) if n == labels[0]], labels[0]
    of = victim(predictor)
    search = Triggers(words=1, k=7)
    (trigger,) = search._search(of, of.vectors("Triggers"), texts, [label] * len(texts), ["ab"])
    losses = search._mean_loss(of, texts, [label] * len(texts), [[word] for word in predictor.words])
    assert trigger == predictor.words[max(range(7), key=losses.__getitem__)]


def test_a_text_without_room_for_words_stays_as_it_is() -> None:
    predictor = BagPredictor(WORDS, seed=3)
    free = regard.attack(predictor, LONG, None, Triggers(words=2, k=7))
    predictor.longest = 4
    bound = regard.attack(predictor, LONG, None, Triggers(words=2, k=7))
    is_long = torch.tensor([len(text.split()) > 2 for text in LONG])
    assert (free.broken & is_long).any()
    assert not (bound.broken & is_long).any()
    assert bound.broken.any()
    assert all(predictor.can_read(text) for text in bound.texts)


# Character edits


def test_misspelled_texts_are_within_the_distance() -> None:
    predictor = BagPredictor(WORDS, seed=1)
    for edits in (1, 2, 3):
        result = regard.attack(predictor, LONG, None, CharacterEdits(edits=edits, k=30))
        assert result.broken.any()
        for clean, text, distance in zip(LONG, result.texts, result.distance.tolist(), strict=True):
            assert distance <= edits
            # a swap of two letters is two substitutions to Levenshtein
            assert edit_distances(clean, [text])[0] <= 2 * distance
            assert len(text.split()) == len(clean.split())


def test_more_edits_are_never_weaker() -> None:
    predictor = BagPredictor(WORDS, seed=1)
    results = [regard.attack(predictor, LONG, None, CharacterEdits(edits=n, k=5, beam=2)) for n in (1, 2, 3)]
    for fewer, more in pairwise(results):
        assert not (fewer.broken & ~more.broken).any()
