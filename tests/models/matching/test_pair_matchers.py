"""Decomposable, ESIM and CoMatcher: their formulas by loops, padding, the order of words, and attention by name."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.for_each import for_each
from torch import Tensor, nn

from regard.models.matching.decomposable import Decomposable, DistanceBias, TransformedDot
from regard.models.matching.encoded_pair import CoMatcher
from regard.models.matching.esim import ESIM
from regard.models.matching.pair_matcher import PairMatcher, named_coattention
from regard.recording.record import record

DIM, CLASSES = 5, 3
MATCHERS: dict[str, Callable[[], PairMatcher]] = {
    "decomposable": lambda: Decomposable(DIM, CLASSES, width=7, intra=False),
    "decomposable, intra": lambda: Decomposable(DIM, CLASSES, width=7, distance=2),
    "decomposable, entmax": lambda: Decomposable(DIM, CLASSES, width=7, attention="entmax"),
    "esim": lambda: ESIM(DIM, CLASSES, hidden=7),
    "esim, gru": lambda: ESIM(DIM, CLASSES, hidden=7, cell="gru"),
    "esim, additive": lambda: ESIM(DIM, CLASSES, hidden=7, attention="additive"),
    "one encoder": lambda: CoMatcher(DIM, CLASSES, width=7),
    "two encoders": lambda: CoMatcher(DIM, CLASSES, second_dim=DIM, width=7),
    "one encoder, additive": lambda: CoMatcher(DIM, CLASSES, width=7, joint_attention="additive"),
}
every_matcher = for_each("name", MATCHERS)


def build(name: str) -> PairMatcher:
    torch.manual_seed(0)
    return MATCHERS[name]().double().eval()


def texts(*lengths: int) -> Tensor:
    return torch.randn(len(lengths), max(lengths), DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def soft(scores: list[Tensor], values: Tensor) -> Tensor:
    weights = torch.stack(scores).softmax(0)
    total = torch.zeros_like(values[0])
    for j in range(len(values)):
        total = total + weights[j] * values[j]
    return total


def test_decomposable_by_loops() -> None:
    model = MATCHERS["decomposable, intra"]().double().eval()
    nn.init.normal_(model.intra.bias.table)  # type: ignore[union-attr, arg-type]
    x, y = texts(4), texts(3)
    sides = []
    for text in (x[0], y[0]):
        vectors = [model.null, *(model.project.weight @ word for word in text)]
        transform, table = model.intra.score.transform, model.intra.bias.table  # type: ignore[union-attr]
        aligned = []
        for i, v in enumerate(vectors):
            scores = [
                transform(v) @ transform(other) + table[max(-3, min(3, j - i)) + 3]  # type: ignore[operator, index]
                for j, other in enumerate(vectors)
            ]
            aligned.append(torch.cat([v, soft(scores, torch.stack(vectors))]))
        sides.append(torch.stack(aligned))
    a, b = sides
    transform = model.attention.score.transform
    sums = []
    for own, other in ((a, b), (b, a)):
        compared = [
            model.compare(torch.cat([v, soft([transform(v) @ transform(u) for u in other], other)]))  # type: ignore[operator]
            for v in own
        ]
        sums.append(torch.stack(compared).sum(0))
    expected = model.output(model.aggregate(torch.cat(sums)))
    found = model(x, y, torch.tensor([4]), torch.tensor([3]))
    torch.testing.assert_close(found[0], expected)


def test_esim_by_loops() -> None:
    model = MATCHERS["esim"]().double().eval()
    x, y = texts(4), texts(3)
    a, b = (model.encoder.rnn(side)[0][0] for side in (x, y))
    pooled = []
    for own, other in ((a, b), (b, a)):
        rows = []
        for v in own:
            read = soft([v @ u for u in other], other)
            rows.append(F.relu(model.project(torch.cat([v, read, v - read, v * read]))))
        states = model.composition.rnn(torch.stack(rows).unsqueeze(0))[0][0]
        pooled += [states.mean(0), states.max(0).values]
    expected = model.output(torch.tanh(model.feed(torch.cat(pooled))))
    torch.testing.assert_close(model(x, y, torch.tensor([4]), torch.tensor([3]))[0], expected)


@pytest.mark.parametrize("name", ["one encoder", "two encoders"])
def test_co_matcher_by_loops(name: str) -> None:
    model = build(name)
    x, z = texts(4)[0], texts(3)[0]
    maps = model.first, model.first if model.second is None else model.second
    a, b = maps[0](x), maps[1](z)
    sides = []
    for states, own, others, theirs in ((x, a, z, b), (z, b, x, a)):
        compared = []
        for state, vector in zip(states, own, strict=True):
            if model.second is None:
                # softmax weights sum to one, so that the map of a mean is the mean of maps
                read = soft([10 * F.cosine_similarity(state, other, dim=0) for other in others], theirs)
            else:
                read = soft([vector @ other / 7**0.5 for other in theirs], theirs)
            features = torch.cat([vector, read, vector - read, vector * read])
            compared.append(torch.relu(model.compare(features)))
        sides += [torch.stack(compared).mean(0), torch.stack(compared).amax(0)]
    means = a.mean(0), b.mean(0)
    features = torch.cat([*sides, (means[0] - means[1]).abs(), means[0] * means[1]])
    found = model(x.unsqueeze(0), z.unsqueeze(0), torch.tensor([4]), torch.tensor([3]))
    torch.testing.assert_close(found[0], model.output(torch.tanh(model.feed(features))))


@every_matcher
def test_padding_is_absent(name: str) -> None:
    model = build(name)
    first, second = texts(4, 2, 1), texts(1, 3, 5)
    lengths = torch.tensor([4, 2, 1]), torch.tensor([1, 3, 5])
    together = model(first, second, *lengths)
    for n in range(3):
        i, j = int(lengths[0][n]), int(lengths[1][n])
        alone = model(first[n : n + 1, :i], second[n : n + 1, :j], lengths[0][n : n + 1], lengths[1][n : n + 1])
        torch.testing.assert_close(alone[0], together[n])
    junk = first.clone()
    junk[1, 2:], junk[2, 1:] = torch.nan, 1e9
    torch.testing.assert_close(model(junk.nan_to_num(7.0), second, *lengths), together)


@every_matcher
def test_the_order_of_words(name: str) -> None:
    """Attention between texts ignores it; attention within a text, or recurrence, does not."""
    model = build(name)
    if isinstance(model, Decomposable) and model.intra is not None:
        nn.init.normal_(model.intra.bias.table)  # type: ignore[union-attr, arg-type]
    first, second, lengths = texts(5), texts(4), (torch.tensor([5]), torch.tensor([4]))
    order = torch.tensor([3, 0, 4, 2, 1])
    before, after = model(first, second, *lengths), model(first[:, order], second, *lengths)
    ignores_order = isinstance(model, CoMatcher) or (isinstance(model, Decomposable) and model.intra is None)
    assert torch.allclose(before, after, atol=1e-10) == ignores_order
    swapped = model(first, second[:, [1, 0, 3, 2]], *lengths)
    assert torch.allclose(before, swapped, atol=1e-10) == ignores_order


@every_matcher
def test_every_parameter_receives_a_gradient(name: str) -> None:
    model = build(name)
    # units that are off pass nothing on, so several pairs are read
    first, second = torch.randn(2, 16, 5, DIM, dtype=torch.float64)
    model(first, second, torch.full((16,), 5), torch.full((16,), 5))[:, 0].sum().backward()
    for parameter, p in model.named_parameters():
        assert p.grad is not None, parameter
        assert p.grad.isfinite().all()
        assert p.grad.any(), parameter


@every_matcher
def test_both_directions_are_recorded(name: str) -> None:
    model = build(name)
    with record(model) as recording:
        model(texts(4), texts(3), torch.tensor([4]), torch.tensor([3]))
    more = model.num_prepended
    maps = recording["attention"]
    assert [item.shape[-2:] for item in maps] == [(4 + more, 3 + more), (3 + more, 4 + more)]
    assert all(item.verified and item.kind == "cross" for item in maps)


def test_distances_beyond_the_limit_share_a_bias() -> None:
    bias = DistanceBias(2)
    nn.init.normal_(bias.table)
    places = torch.arange(9)
    values = bias(torch.zeros(9, 1), places, places, 9)
    assert values[0, 3].item() == values[0, 8].item() != values[0, 2].item()
    assert values[8, 0].item() == values[8, 5].item() != values[0, 8].item()
    assert "TransformedDot(5)" in repr(TransformedDot(5, 7))


@pytest.mark.parametrize("name", ["local-p", "hard", "bidaf", "alibi"])
def test_a_mechanism_that_is_more_than_a_score(name: str) -> None:
    with pytest.raises(
        ValueError, match=rf"attention='{name}' is more than a score and a normalizer.*; try attention="
    ):
        named_coattention(name, 8)
