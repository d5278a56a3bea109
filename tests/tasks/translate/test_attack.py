"""Words that a translation must or must not have: their losses, their verdicts, and targets that are none."""

import re

import pytest
import torch

import regard
from regard.attacks import ForbiddenWord, HotFlip, TargetWord
from regard.data.text.tokenizer import Tokenizer
from regard.models.seq2seq import Seq2Seq
from regard.tasks.translate.attack import TranslationTarget, first_token, has_word
from regard.tasks.translate.predictor import Translator
from regard.tasks.translate.vocabularies import Vocabularies

LINES = ["a b c", "d e a", "b d"]


@pytest.fixture(scope="module")
def translator() -> Translator:
    words = Tokenizer.train("words", LINES, 20)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = Seq2Seq(len(words), len(words), width=6, hidden=8)
        for p in model.parameters():
            p.data.add_(torch.randn_like(p), alpha=0.5)
    return Translator(model.eval(), Vocabularies(words, words))


def test_a_word_stands_alone_or_beside_punctuation() -> None:
    assert has_word("das Haus, dort", "Haus")
    assert has_word("a ##x b", "##x")
    assert not has_word("Haustür", "Haus")


def test_losses_are_positive_where_a_step_would_change() -> None:
    logits = torch.tensor([[[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]], [[1.0, 0.5, 3.0], [5.0, 1.0, 0.0]]])
    appears = TranslationTarget(TargetWord("w"), 2, (0, 1))
    assert appears.loss(logits).tolist() == [-2.0, 2.0]
    # it stands at the second step alone
    vanishes = TranslationTarget(ForbiddenWord("w"), 1, (0, 1))
    assert vanishes.loss(logits).tolist() == [-2.0, 4.0]
    # and if it is written with other tokens, anywhere
    assert TranslationTarget(ForbiddenWord("w"), 2, (0, 1)).loss(logits).tolist() == [2.0, -2.0]


def test_words_appear_and_vanish(translator: Translator) -> None:
    texts = ["a b c", "e d a d"]
    clean = [best.text for best, *_ in translator.translate(texts)]
    present = next(word for word in clean[0].split())
    absent = next(word for word in "abcde" if not any(has_word(text, word) for text in clean))
    for word, attack in (
        (ForbiddenWord(present), HotFlip(flips=3, k=None)),
        (TargetWord(absent), HotFlip(flips=3, k=None)),
    ):
        result = regard.attack(translator, texts, [word] * 2, attack)
        after = [best.text for best, *_ in translator.translate(result.texts)]
        assert result.broken.tolist() == [has_word(text, word.word) == word.appears for text in after]
        assert result.was_broken.tolist() == [has_word(text, word.word) == word.appears for text in clean]
        assert (result.broken & ~result.was_broken).any()


def test_a_word_outside_of_the_vocabulary(translator: Translator) -> None:
    tokenizer = Tokenizer.train("words", ["house tree"], 20)
    sentence = "the word 'houes' is not in the vocabulary of translations, so none can have it; did you mean 'house'?"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        first_token(TargetWord("houes"), tokenizer)
    with pytest.raises(ValueError, match="name a word of the training targets$"):
        regard.attack(translator, ["a"], [TargetWord("zzz")], HotFlip())


def test_targets_that_are_no_words(translator: Translator) -> None:
    sentence = (
        "targets of a translator must be words that must or must not appear, one per text, got ['a']; write "
        "[regard.attacks.TargetWord('Haus')] or [regard.attacks.ForbiddenWord('Haus')]"
    )
    with pytest.raises(TypeError, match=f"^{re.escape(sentence)}$"):
        regard.attack(translator, ["a"], ["a"], HotFlip())
