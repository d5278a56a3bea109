"""Generated documents: the sentence that decides decides, and a bag of words does not."""

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
