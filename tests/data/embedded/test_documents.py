"""Generated documents: the sentence that decides decides, and a bag of words does not."""

import numpy as np
import pytest
from tests.product import first

from regard.data.embedded.documents import CLASSES, DECIDING, OUTCOMES, THINGS, splits
from regard.data.text.labelled import LabelledTexts
from regard.data.text.sentences import split_sentences

STATEMENTS = {
    frame.format(clause=clause.format(thing=thing)): label
    for frame in DECIDING
    for label, clauses in OUTCOMES.items()
    for clause in clauses
    for thing in THINGS
}


def test_exactly_one_sentence_decides_and_it_is_the_evidence() -> None:
    made = splits(0)
    for part in (made.train, made.valid, made.test):
        assert part.evidence is not None
        for text, label, evidence in zip(part.texts, part.labels, part.evidence, strict=True):
            sentences = split_sentences(text)
            assert 3 <= len(sentences) <= 8
            deciding = [n for n, sentence in enumerate(sentences) if sentence in STATEMENTS]
            assert deciding == [evidence]
            assert STATEMENTS[sentences[evidence]] == CLASSES[label]


def test_parts_share_no_document_and_classes_are_even() -> None:
    made = splits(1, train=801, valid=100, test=203)
    parts = [made.train, made.valid, made.test]
    assert [len(part) for part in parts] == [801, 100, 203]
    texts = [text for part in parts for text in part.texts]
    assert len(set(texts)) == len(texts)
    for part in parts:
        counts = np.bincount(part.labels, minlength=len(CLASSES))
        assert counts.max() - counts.min() <= 1


def test_the_seed_decides() -> None:
    one, again, other = splits(2, 50, 20, 30), splits(2, 70, 20, 30), splits(3, 50, 20, 30)
    assert list(one.test.texts) == list(again.test.texts) != list(other.test.texts)
    assert list(one.train.texts) == list(again.train.texts)[:50]


def accuracy(train: LabelledTexts, test: LabelledTexts, ngrams: int) -> float:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    counts = CountVectorizer(token_pattern=r"\S+", ngram_range=(1, ngrams))
    model = LogisticRegression(C=0.1, max_iter=2000).fit(counts.fit_transform(train.texts), train.labels)
    return model.score(counts.transform(test.texts), test.labels)


@pytest.mark.parametrize(("ngrams", "bound"), first([(1, 0.5), (2, 0.6)]))
def test_a_bag_of_words_fails_where_the_deciding_sentence_is_enough(ngrams: int, bound: float) -> None:
    pytest.importorskip("sklearn")
    made = splits(0)
    assert accuracy(made.train, made.test, ngrams) < bound

    def deciding(part: LabelledTexts) -> LabelledTexts:
        assert part.evidence is not None
        texts = [split_sentences(text)[n] for text, n in zip(part.texts, part.evidence, strict=True)]
        return LabelledTexts(texts, part.labels, part.classes)

    assert accuracy(deciding(made.train), deciding(made.test), 1) > 0.99


def test_bad_counts_are_told() -> None:
    with pytest.raises(ValueError, match="valid must be 1 or more, got 0; try valid=1000"):
        splits(0, valid=0)
