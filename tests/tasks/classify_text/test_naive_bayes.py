"""Naive Bayes and log-count ratios: the formulas written out, the baseline of a run, and embeddings that start so."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.naive_bayes import MultinomialNB
from tests.tasks.classify_text.texts import config, prepared

from regard.data.text.special_tokens import SPECIAL, UNK
from regard.models.self_attentive import SelfAttentive
from regard.tasks.classify_text.data import pad, train_tokenizer
from regard.tasks.classify_text.naive_bayes import log_count_ratios, naive_bayes, token_counts
from regard.tasks.classify_text.options import ClassifyText
from regard.tasks.shared.text_options import EvaluateLabelledTexts

# tokens 4 to 6 of three classes; the unknown one says nothing
TEXTS = [[[4, 4], [5]], [[5, 6, UNK]], [[6, 6, 6]], [[4, UNK]]]
LABELS = np.array([0, 1, 2, 0])
VOCABULARY = SPECIAL + 3


def test_ratios_are_those_of_one_class_against_the_others() -> None:
    """r_kw = log((p_w / |p|) / (q_w / |q|)), p = 1 + counts of class k, q = 1 + counts of the others."""
    ratios = log_count_ratios(token_counts(TEXTS, LABELS, VOCABULARY, 3))
    occurrences = [[3, 1, 0], [0, 1, 1], [0, 0, 3]]
    for k, own in enumerate(occurrences):
        others = [sum(occurrences[n][w] for n in range(3) if n != k) for w in range(3)]
        p, q = [1 + n for n in own], [1 + n for n in others]
        expected = [math.log(p[w] / sum(p)) - math.log(q[w] / sum(q)) for w in range(3)]
        np.testing.assert_allclose(ratios[k, SPECIAL:], expected, rtol=1e-12)
    assert not ratios[:, :SPECIAL].any()


def test_ratios_of_two_classes_are_opposite() -> None:
    ratios = log_count_ratios(token_counts(TEXTS, np.array([0, 1, 1, 0]), VOCABULARY, 2))
    np.testing.assert_allclose(ratios[0], -ratios[1], rtol=1e-12)


def test_naive_bayes_is_that_of_scikit_learn() -> None:
    counts = token_counts(TEXTS, LABELS, VOCABULARY, 3)
    model = naive_bayes(counts, LABELS)
    rows = np.array([[sum(part.count(w) for part in text) for w in range(SPECIAL, VOCABULARY)] for text in TEXTS])
    # priors with one text more per class
    peer = MultinomialNB(alpha=1.0, class_prior=[3 / 7, 2 / 7, 2 / 7]).fit(rows, LABELS)
    with torch.no_grad():
        found = model(*pad(TEXTS, by_sentence=False)).softmax(-1)
    np.testing.assert_allclose(found, peer.predict_proba(rows), rtol=1e-5)


@pytest.mark.parametrize("model", ["self-attentive", "hierarchical"])
def test_embeddings_start_from_ratios(model: str, tmp_path: Path) -> None:
    """The same random vectors, and beside them Σ_k r_kw u_k: of rank one per class, zero where the ratios are."""
    started = []
    for start in ("random", "log-ratios"):
        torch.manual_seed(7)
        started.append(prepared(tmp_path / start, model, initial_embeddings=start).build_model())
    plain, ratioed = (dict(each.named_parameters()) for each in started)
    assert all(torch.equal(plain[name], ratioed[name]) for name in plain if name != "embedding.weight")
    added = (ratioed["embedding.weight"] - plain["embedding.weight"]).detach().double()
    problem = prepared(tmp_path / "again", model)
    counts = token_counts(problem.texts, problem.labels, len(added), 3)
    ratios = torch.from_numpy(log_count_ratios(counts).T.copy())
    directions = torch.linalg.lstsq(ratios, added).solution  # "k d"
    torch.testing.assert_close(ratios @ directions, added, atol=1e-5, rtol=1e-5)
    lengths = directions.norm(dim=-1)
    torch.testing.assert_close(lengths, lengths.mean().expand(3), atol=1e-4, rtol=1e-4)
    assert not added[:SPECIAL].any()


def test_rare_words_are_unknown() -> None:
    """With a least count of one none is; if all words are rarer than the least count, all are kept."""
    known = {}
    for least in (1, 2, 3, 4):
        task = ClassifyText.of(train="a.txt", min_count=least)
        (ids,) = train_tokenizer(task, ["c c b a", "c b"]).encode(["a b c d"])
        known[least] = [n != UNK for n in ids]
    kept = [True, True, True, False]
    assert known == {1: kept, 2: [False, True, True, False], 3: [False, False, True, False], 4: kept}


def test_an_evaluation_has_naive_bayes_beside_the_bag_of_words(tmp_path: Path) -> None:
    task = config(tmp_path).load()
    task.prepare(tmp_path, new=True)
    predictor = task.predictor(tmp_path)
    evaluation = task.evaluate(predictor, tmp_path, EvaluateLabelledTexts(), lambda done, count: None)
    start = "naive Bayes, the baseline by counts alone: accuracy 100.00 (95 % interval "
    assert any(note.startswith(start) for note in evaluation.notes)
    # a run whose vocabulary is too large for it has none
    (tmp_path / "naive-bayes.safetensors").unlink()
    evaluation = task.evaluate(predictor, tmp_path, EvaluateLabelledTexts(), lambda done, count: None)
    assert "naive_bayes" not in evaluation.facts


def test_ratios_belong_to_models_that_attend() -> None:
    for options in ({"model": "bag-of-words"}, {"encoder": "bert"}):
        with pytest.raises(ValueError, match=r"initial_embeddings='log-ratios' belongs to model='self-attentive'"):
            ClassifyText.of(initial_embeddings="log-ratios", **options)
    assert isinstance(ClassifyText.of(initial_embeddings="log-ratios").model.build(11, 3), SelfAttentive)
