"""Models in transformers' layout under attack: a folder by `regard.load`, and a module with its tokenizer."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.tasks.encoders import bert_folder

import regard
from regard.attacks import CharacterEdits, HotFlip, SameStart, Triggers
from regard.attacks.text.victim import TextVictim
from regard.attribution import TransformersClassifier
from regard.inference.edited_text import EditedText
from regard.inference.embedding_gradient import embedding_gradient

TEXTS = ["a good film", "it was bad", "tripping to a film"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT whose classes depend on the words: their mean logits are level, and the vectors of words large."""
    path = bert_folder(tmp_path_factory.mktemp("bert"), "BertForSequenceClassification", num_labels=3)
    model = transformers.BertForSequenceClassification.from_pretrained(path).eval()
    model.bert.embeddings.word_embeddings.weight.data.mul_(5)
    tokenizer = transformers.BertTokenizerFast.from_pretrained(path)
    with torch.no_grad():
        logits = model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits
    model.classifier.bias.data.sub_(logits.mean(0))
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def module(folder: Path) -> Any:
    model = transformers.BertForSequenceClassification.from_pretrained(folder).eval()
    return TransformersClassifier(model, transformers.BertTokenizerFast.from_pretrained(folder))


@pytest.mark.parametrize("attack", [HotFlip(2, 20, 3), Triggers(2, 9, 1), CharacterEdits(2, 20)])
def test_the_folder_and_the_module_are_attacked_alike(folder: Path, module: Any, attack: Any) -> None:
    predictor = regard.load(folder, device="cpu")
    of_folder, of_module = (regard.attack(each, TEXTS, None, attack) for each in (predictor, module))
    assert of_folder.broken.any()
    assert of_folder.texts == of_module.texts
    torch.testing.assert_close(of_folder.loss, of_module.loss, atol=1e-4, rtol=1e-4)


def test_gradients_are_those_of_the_tokens_between_the_special_ones(module: Any) -> None:
    text = EditedText("a good film, a good film")
    places, gradient = TextVictim(module, 8).gradient(text, 0)
    read = embedding_gradient(module.embedding, lambda: module.attack_scores([text], [0]).loss)
    assert [place.token for place in places] == read.tokens[1:-1].tolist()
    torch.testing.assert_close(gradient, read.gradient[1:-1])
    # the same words at other places have other gradients
    assert not torch.allclose(gradient[:3], gradient[4:])


def test_pieces_keep_their_kind(module: Any) -> None:
    vocabulary = module.token_texts()
    result = regard.attack(module, TEXTS, None, HotFlip(1, None, constraints=(SameStart(),)))
    for text, edited in zip(TEXTS, result.inputs, strict=True):
        starts = {place.start: place for place in module.token_places(text)}
        for edit in edited.edits:
            new = edited.text[edit.start : edit.end]
            kinds = [vocabulary.continues[n] for n, each in enumerate(vocabulary.texts) if each == new]
            assert vocabulary.continues[starts[edit.start].token] in kinds


def test_text_that_is_read_as_other_tokens_is_counted_apart(module: Any) -> None:
    # without the constraint a piece inside of a word may be replaced by a whole word, which is then read otherwise
    free = regard.attack(module, TEXTS, None, HotFlip(2, None, 20, constraints=()))
    for text, edited, is_reread in zip(TEXTS, free.inputs, free.is_reread.tolist(), strict=True):
        before, after = (module.token_places(each) for each in (text, edited.text))
        changed = sum(a.token != b.token for a, b in zip(before, after, strict=False))
        assert is_reread == (len(before) != len(after) or changed != len(edited.edits))
    # an attack that spells letters chooses no tokens
    assert not regard.attack(module, TEXTS, None, CharacterEdits(2, 20)).is_reread.any()
