"""The predictor of classify-text: batched equals one by one, its loss is torch's, its recordings have labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tasks.classify_text.texts import SMALL, config, lines
from torch import nn

from regard.inference.predictor import labelled_recording, predict_recorded
from regard.tasks.classify_text.data import sentences_of
from regard.tasks.classify_text.predictor import ClassifyTextPredictor, TextClasses
from regard.tasks.shared.text_options import PredictTextClasses

every_model = pytest.mark.parametrize("model", SMALL)
attending = pytest.mark.parametrize("model", ["self-attentive", "hierarchical"])
TEXTS = [line.split("\t")[1] for line in lines()] + ["", "unheard words. It rained. It rained. It rained.", "fine"]


def predictor_of(folder: Path, model: str, **options: Any) -> ClassifyTextPredictor:
    task = config(folder, model, **options).load()
    task.prepare(folder, new=True)
    predictor = task.predictor(folder)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in predictor.model.parameters():
            p.normal_(0, 0.5, generator=generator)
    predictor.model.eval()
    return predictor


@every_model
def test_batched_is_one_by_one(model: str, tmp_path: Path) -> None:
    """Neither the padding nor the company of a text changes its classes."""
    predictor = predictor_of(tmp_path, model)
    predictor.batch = 7
    together = predictor.predict(TEXTS)
    for text, output in zip(TEXTS, together, strict=True):
        (alone,) = predictor.predict([text])
        assert [name for name, _ in alone.probabilities] == [name for name, _ in output.probabilities]
        assert dict(alone.probabilities) == pytest.approx(dict(output.probabilities), abs=1e-6)
        assert sum(p for _, p in output.probabilities) == pytest.approx(1.0)


@every_model
def test_the_loss_is_that_of_torch(model: str, tmp_path: Path) -> None:
    predictor = predictor_of(tmp_path, model, dropout=0.5) if model != "bag-of-words" else predictor_of(tmp_path, model)
    texts, targets = TEXTS[:5], ["good", "bad", "so-so", "bad", "good"]
    predictor.model.train()
    loss = predictor.loss(texts, targets)
    assert predictor.model.training
    probabilities = predictor.probabilities(sentences_of(predictor.tokenizer, texts, 400))
    expected = [-np.log(row[predictor.classes.index(name)]) for row, name in zip(probabilities, targets, strict=True)]
    assert loss.tolist() == pytest.approx(expected, rel=1e-5)
    loss.sum().backward()
    with pytest.raises(ValueError, match="unknown target 'goood'; did you mean 'good'"):
        predictor.loss(["a"], ["goood"])


@attending
def test_embeddings_are_those_of_the_tokens(model: str, tmp_path: Path) -> None:
    predictor = predictor_of(tmp_path, model)
    assert isinstance(predictor.embedding, nn.Embedding)
    embedded = predictor.embeddings(["A film that is fine.", "It rained."])
    ids = predictor.tokenizer.encode(["A film that is fine."])[0]
    torch.testing.assert_close(embedded[0, : len(ids)], predictor.embedding(torch.tensor(ids)))


def test_a_bag_of_words_has_neither_embeddings_nor_attention(tmp_path: Path) -> None:
    predictor = predictor_of(tmp_path, "bag-of-words")
    assert predictor.embedding is None
    with pytest.raises(TypeError, match="takes no tokens, so it has no embeddings"):
        predictor.embeddings(["a"])
    with pytest.raises(ValueError, match="--picture needs attention, and a bag of words has none; leave --picture out"):
        predictor.session(PredictTextClasses(), tmp_path / "a.png")


def test_outputs_as_text_and_json(tmp_path: Path) -> None:
    predictor = predictor_of(tmp_path, "self-attentive")
    output = TextClasses((("good", 0.931), ("bad", 0.05), ("so-so", 0.019)), top=2)
    assert predictor.text(output) == "good 93.1 %\tbad 5.0 %"
    assert predictor.json(output) == {"classes": {"good": 0.931, "bad": 0.05, "so-so": 0.019}}
    (best,) = predictor.predict(["A film that is fine."])
    (several,) = predictor.predict(["A film that is fine."], PredictTextClasses(top=3))
    assert predictor.text(several).split("\t")[0] == predictor.text(best)
    assert list(predictor.json(best)["classes"]) == [name for name, _ in several.probabilities]


def test_unknown_and_cut_off_tokens_are_noted(tmp_path: Path) -> None:
    predictor = predictor_of(tmp_path, "self-attentive", max_length=6)
    texts = ["unheard words", "A film that is fine. It rained. A film", "It rained."]
    session = predictor.session(PredictTextClasses(), None)
    session.add(texts, predictor.predict(texts), 0)
    assert session.finish() == [
        "2 tokens were not in the vocabulary, so the model could not read them",
        "1 text was cut off after 6 tokens",
    ]
    assert predictor.session(PredictTextClasses(), None).finish() == []


def test_hops_read_tokens(tmp_path: Path) -> None:
    predictor = predictor_of(tmp_path, "self-attentive")
    output, recording = labelled_recording(predictor, TEXTS[0], PredictTextClasses(top=3))
    (item,) = recording
    assert item.verified
    rows, columns = recording.labels(item)
    assert rows == ("hop 1", "hop 2")
    assert columns == tuple(TEXTS[0].split())
    assert recording.about["text"] == TEXTS[0]
    assert recording.about["said"] == predictor.text(output).replace("\t", ", ")


def test_a_document_is_read_by_words_and_sentences(tmp_path: Path) -> None:
    """Its first row is word attention × sentence attention; the others are the word attention of each sentence."""
    predictor = predictor_of(tmp_path, "hierarchical")
    text = "It rained. The play was fine."
    _, raw = predict_recorded(predictor, [text])
    words, sentences = (item.weights.dense() for item in raw)  # "2 1 4", "1 1 2"
    _, recording = labelled_recording(predictor, text)
    document, of_sentences = recording
    assert document.verified
    expected = torch.zeros(3, 6)
    expected[1, :2], expected[2, 2:] = words[0, 0, :2], words[1, 0]
    expected[0] = sentences[0, 0, 0] * expected[1] + sentences[0, 0, 1] * expected[2]
    torch.testing.assert_close(document.weights.dense(), expected[None])
    rows, columns = recording.labels(document)
    shares = [f"{100 * float(share):.0f}" for share in sentences.flatten()]
    assert rows == ("document", f"sentence 1 ({shares[0]} %)", f"sentence 2 ({shares[1]} %)")
    assert columns == tuple(text.split())
    assert recording.labels(of_sentences) == (("document",), None)
    # one module alone has no document
    _, some = labelled_recording(predictor, text, layers=["word_attention.*"])
    assert [item.shape for item in some] == [(2, 1, 4)]


def test_a_sentence_without_tokens_has_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = predictor_of(tmp_path, "hierarchical")
    text = "It rained. The play was fine."
    _, whole = labelled_recording(predictor, text)
    plain, placed = predictor.tokenizer.encode, predictor.tokenizer.encode_with_offsets

    def encoded(lines: list[str]) -> list[list[int]]:
        return [[] if line == "Nothing." else plain([line])[0] for line in lines]

    def with_offsets(lines: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        return [([], []) if line == "Nothing." else placed([line])[0] for line in lines]

    monkeypatch.setattr(predictor.tokenizer, "encode", encoded)
    monkeypatch.setattr(predictor.tokenizer, "encode_with_offsets", with_offsets)
    _, recording = labelled_recording(predictor, "It rained. Nothing. The play was fine.")
    document = recording.maps[0]
    torch.testing.assert_close(document.weights.dense(), whole.maps[0].weights.dense())
    rows, columns = recording.labels(document)
    assert [row.split(" (")[0] for row in rows] == ["document", "sentence 1", "sentence 3"]
    assert columns == tuple(text.split())


@attending
@pytest.mark.parametrize("attention", ["paper", "multi-head"])
@pytest.mark.parametrize("suffix", [".png", ".html", ".txt"])
def test_the_picture(model: str, attention: str, suffix: str, tmp_path: Path) -> None:
    predictor = predictor_of(tmp_path, model, attention=attention, hidden=8)
    output, recording = labelled_recording(predictor, TEXTS[4])
    path = predictor.draw(recording, TEXTS[4], output, tmp_path / f"a{suffix}")
    assert path.stat().st_size > 100
