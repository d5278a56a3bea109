"""BagOfWords: counts times weights, in any order, and what scikit-learn's logistic regression finds."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attn.call import Need
from regard.models import BagOfWords

B, T, VOCABULARY, CLASSES, BUCKETS = 3, 7, 17, 5, 11
LENGTHS = torch.tensor([4, 7, 1])


def built(bigrams: int = BUCKETS) -> BagOfWords:
    torch.manual_seed(1)
    model = BagOfWords(VOCABULARY, CLASSES, bigrams=bigrams).double()
    for p in model.parameters():
        torch.nn.init.normal_(p)
    return model


def given() -> tuple[Tensor, Tensor]:
    torch.manual_seed(2)
    return torch.randint(1, VOCABULARY, (B, T)).masked_fill(torch.arange(T) >= LENGTHS[:, None], 0), LENGTHS


@pytest.mark.parametrize("bigrams", [0, BUCKETS])
def test_the_sum_written_out(bigrams: int) -> None:
    model = built(bigrams)
    tokens, lengths = given()
    for row, length, logits in zip(tokens, lengths.tolist(), model(tokens, lengths), strict=True):
        want = model.bias + sum(model.weights.weight[word] for word in row[:length])
        if model.pairs is not None:
            for n in range(length - 1):
                want = want + model.pairs.weight[model.buckets(row[None, n : n + 2])[0, 0]]
        torch.testing.assert_close(logits, want)


@pytest.mark.parametrize("bigrams", [0, BUCKETS])
def test_padding_is_absent_and_order_counts_in_pairs_alone(bigrams: int) -> None:
    model = built(bigrams)
    tokens, lengths = given()
    want = model(tokens, lengths)
    inside = torch.arange(T) < lengths[:, None]
    torch.testing.assert_close(model(tokens.masked_fill(~inside, 3), lengths), want)
    torch.testing.assert_close(model(F.pad(tokens, (0, 4), value=2), lengths), want)
    for b, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(model(tokens[b : b + 1, :length], lengths[b : b + 1])[0], want[b])
    turned = model(tokens[1:2].flip(1), lengths[1:2])[0]
    assert torch.allclose(turned, want[1]) == (bigrams == 0)


def test_a_good_hash_keeps_pairs_apart() -> None:
    model = BagOfWords(100, 2, bigrams=1 << 20)
    a, b = torch.meshgrid(torch.arange(100), torch.arange(100), indexing="ij")
    buckets = model.buckets(torch.stack([a.flatten(), b.flatten()], 1))
    assert buckets.min() >= 0
    assert buckets.max() < 1 << 20
    assert len(buckets.unique()) > 9900
    assert torch.bincount(model.buckets(torch.stack([a.flatten(), b.flatten()], 1)).flatten() % 16).min() > 500


def test_it_finds_what_scikit_learn_finds() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, 300)
    # every class has words of its own, and words that all have
    tokens = np.where(draw.random((300, 9)) < 0.3, 1 + labels[:, None], draw.integers(1, 13, (300, 9)))
    counts = np.stack([np.bincount(row, minlength=13) for row in tokens])
    reference = linear.LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(counts, labels)
    model = BagOfWords(13, 3, bigrams=0).double()
    x, lengths, y = torch.from_numpy(tokens), torch.full((300,), 9), torch.from_numpy(labels)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1000, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        total = F.cross_entropy(model(x, lengths), y, reduction="sum") + 0.5 * model.weights.weight.square().sum()
        total.backward()
        return total

    optimizer.step(loss)
    with torch.no_grad():
        p = model(x, lengths).softmax(-1).numpy()
    np.testing.assert_allclose(p, reference.predict_proba(counts), atol=1e-4)


@pytest.mark.parametrize("bigrams", [-1, True, 1.5])
def test_bad_buckets_are_told(bigrams: int) -> None:
    with pytest.raises(ValueError, match=f"bigrams must be a number of buckets, 0 or more, got {bigrams!r}; try"):
        BagOfWords(3, 2, bigrams=bigrams)


def test_it_has_no_attention() -> None:
    model = BagOfWords(3, 2, bigrams=0)
    with pytest.raises(ValueError, match="asks for results of an attention, and a bag of words has none; leave it out"):
        model.classify(torch.tensor([[1]]), torch.tensor([1]), Need(weights=True))


def test_bad_shapes_are_told() -> None:
    with pytest.raises(ValueError, match=r"tokens must be \(texts, words\) with one length per text, got \(7\) and"):
        built()(torch.zeros(7, dtype=torch.int64), torch.tensor([7]))
