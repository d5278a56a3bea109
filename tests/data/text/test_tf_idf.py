"""Tf-idf, against scikit-learn."""

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from regard.data.text.tf_idf import TfIdf, words_of

LINES = ["a red bird sings", "the red, red house", "a house", "birds sing in the house", ""]


def test_against_scikit_learn() -> None:
    vectorizer = TfidfVectorizer(tokenizer=words_of, token_pattern=None, sublinear_tf=True, lowercase=False)
    candidates = vectorizer.fit_transform(LINES)
    queries = ["a red red house", "the bird", "sings a house"]
    expected = (vectorizer.transform(queries) @ candidates.T).toarray()
    np.testing.assert_allclose([TfIdf(LINES).similarity(query) for query in queries], expected, atol=1e-12)


def test_words_that_no_candidate_has() -> None:
    known, unknown = (TfIdf(LINES).similarity(query) for query in ("red house", "red house on fire"))
    assert 0 < unknown[1] < known[1]
    assert not any(TfIdf(LINES).similarity(query).any() for query in ("zebra", ""))
