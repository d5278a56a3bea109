"""Plans and batches: every sample once, within the bound, the same for the same seed; tensors that hold the corpus."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from tests.work import calls_of

from regard.data.text.batching import PairBatch, collate, long_sample_warnings, plan_batches, source_batch
from regard.data.text.corpus import Corpus, TokenizedLines
from regard.data.text.special_tokens import BOS, EOS, PAD


def lengths(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Sentences and their translations: 22 tokens or so, a fifth longer or shorter."""
    draw = np.random.default_rng(seed)
    target = np.clip(draw.lognormal(3, 0.5, count), 1, 200).astype(np.int64)
    return np.clip(target * draw.normal(1, 0.2, count), 1, 250).astype(np.int64), target


def side(count: int, longest: int, seed: int) -> TokenizedLines:
    draw = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(draw.integers(1, longest + 1, count))])
    return TokenizedLines(draw.integers(4, 100, starts[-1]).astype(np.int32), starts)


CORPUS = Corpus(side(23, 11, 0), side(23, 7, 1))


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=80),
    st.integers(1, 200),
    st.integers(0, 2**40),
    st.integers(0, 9),
)
def test_every_sample_once_within_the_bound(sizes: list[tuple[int, int]], tokens: int, seed: int, epoch: int) -> None:
    source = np.array([a for a, _ in sizes], np.int64)
    target = np.array([b for _, b in sizes], np.int64)
    batches = plan_batches((source, target), tokens, seed, epoch)
    assert sorted(n for batch in batches for n in batch) == list(range(len(sizes)))
    for batch in batches:
        assert len(batch) >= 1
        for longest in (source[batch].max(), target[batch].max()):
            assert len(batch) == 1 or len(batch) * (longest + 1) <= tokens
    again = plan_batches((source, target), tokens, seed, epoch)
    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in batches]


def test_epochs_and_seeds_differ_and_nothing_is_changed() -> None:
    source, target = lengths(3001)
    before = source.copy(), target.copy()
    plans = {
        (seed, epoch): [batch.tolist() for batch in plan_batches((source, target), 1000, seed, epoch)]
        for seed in (0, 1)
        for epoch in (0, 1, 2)
    }
    assert len({str(batches) for batches in plans.values()}) == 6
    # not the order alone: the company changes too
    # (the longest and the shortest have nobody else to go with)
    companies = [{tuple(sorted(batch)) for batch in batches} for batches in plans.values()]
    assert len(companies[0] & companies[1]) < len(companies[0]) / 5
    np.testing.assert_array_equal(source, before[0])
    np.testing.assert_array_equal(target, before[1])
    torch.manual_seed(3)
    assert [batch.tolist() for batch in plan_batches((source, target), 1000, 0, 0)] == plans[0, 0]


def test_the_order_is_not_by_length() -> None:
    source, target = lengths(20_011)
    sizes = [target[batch].mean() for batch in plan_batches((source, target), 2000, 0, 0)]
    assert abs(np.corrcoef(sizes, range(len(sizes)))[0, 1]) < 0.25


@pytest.mark.parametrize(
    ("count", "tokens", "sequences"),
    [(29_000, 1024, 2), (29_000, 4096, 1), (29_000, 4096, 3), (200_000, 4096, 2), (200_000, 25_000, 2)],
)
def test_little_is_padding(count: int, tokens: int, sequences: int) -> None:
    source, target = lengths(count)
    sizes = (source, target, source // 2 + 1)[:sequences]
    batches = plan_batches(sizes, tokens, 0, 0)
    longest = np.maximum.reduce(list(sizes))
    for size in sizes if sequences == 2 else [longest]:
        padded = sum(len(batch) * (size[batch].max() + 1) for batch in batches)
        assert 1 - (size + 1).sum() / padded < 0.15
    # most batches are full, and none is too large
    used = [len(batch) * (longest[batch].max() + 1) / tokens for batch in batches]
    assert np.median(used) > 0.9
    assert max(used) <= 1


def test_a_million_samples_are_planned_at_once() -> None:
    source, target = lengths(1_000_000)
    batches: list[object] = []
    calls = calls_of(lambda: batches.extend(plan_batches((source, target), 4096, 0, 0)))
    assert calls < 20 * len(batches), f"{calls} calls for {len(batches)} batches"


def test_plans_that_cannot_be_are_told() -> None:
    source, target = lengths(5)
    with pytest.raises(ValueError, match="tokens must be 1 or more, got 0; try tokens=4096"):
        plan_batches((source, target), 0, 0, 0)
    with pytest.raises(ValueError, match="seed and epoch must be 0 or more, got seed=-1 and epoch=2; count from 0"):
        plan_batches((source, target), 9, -1, 2)
    with pytest.raises(ValueError, match="lengths must be of the same samples, got 5 and 4; take all from one corpus"):
        plan_batches((source, target[:4]), 9, 0, 0)
    with pytest.raises(ValueError, match="lengths must be of the same samples, got none; take all from one corpus"):
        plan_batches((), 9, 0, 0)


def test_the_batches_of_pairs_are_those_of_earlier_versions() -> None:
    rng = np.random.default_rng(0)
    target = rng.integers(1, 9, 12)
    source = rng.integers(1, 9, 12)
    batches = [batch.tolist() for batch in plan_batches((source, target), 20, 3, 1)]
    assert batches == [[11, 0], [8, 4], [9, 2], [1, 10], [5, 6], [3, 7]]


def check(batch: PairBatch, rows: list[int]) -> None:
    assert batch.index.tolist() == rows
    assert len(batch) == len(rows)
    assert batch.source.dtype == batch.target.dtype == batch.source_lengths.dtype == torch.int64
    for i, n in enumerate(rows):
        source, target = CORPUS.source[n].tolist(), CORPUS.target[n].tolist()
        assert batch.source_lengths[i] == len(source) + 1
        assert batch.target_lengths[i] == len(target) + 1
        assert [t for t in batch.source[i].tolist() if t != PAD] == [*source, EOS]
        assert batch.source[i, : len(source) + 1].tolist() == [*source, EOS]
        assert [t for t in batch.target[i].tolist() if t != PAD] == [BOS, *target, EOS]
        assert batch.target[i, : len(target) + 2].tolist() == [BOS, *target, EOS]
    assert batch.source.shape[1] == batch.source_lengths.max()
    assert batch.target.shape[1] == batch.target_lengths.max() + 1
    assert batch.tokens == sum(len(CORPUS.target[n]) + 1 for n in rows)


@given(st.lists(st.integers(0, 22), min_size=1, max_size=13))
def test_a_batch_holds_its_samples(rows: list[int]) -> None:
    check(collate(CORPUS, rows), rows)
    check(collate(CORPUS, np.array(rows, np.int32)), rows)


@given(st.lists(st.integers(0, 22), min_size=1, max_size=7), st.integers(1, 9))
def test_shards_are_the_batch(rows: list[int], world: int) -> None:
    batch = collate(CORPUS, rows)
    shards = [batch.shard(rank, world) for rank in range(world)]
    for rank, shard in enumerate(shards):
        if rank < len(rows):
            assert shard is not None
            check(shard, rows[rank::world])
        else:
            assert shard is None
    assert sum(shard.tokens for shard in shards if shard) == batch.tokens


def test_a_batch_moves() -> None:
    batch = collate(CORPUS, [3, 5]).to("meta")
    for tensor in (batch.source, batch.source_lengths, batch.target, batch.target_lengths):
        assert tensor.device.type == "meta"
    check(collate(CORPUS, [3, 5]).to(torch.device("cpu")), [3, 5])


def test_a_source_of_its_own() -> None:
    source, sizes = source_batch([[7, 8, 9], [], [5]])
    assert source.tolist() == [[7, 8, 9, EOS], [EOS, PAD, PAD, PAD], [5, EOS, PAD, PAD]]
    assert sizes.tolist() == [4, 1, 2]
    batch = collate(CORPUS, [2, 7, 11])
    source, sizes = source_batch([CORPUS.source[n].tolist() for n in (2, 7, 11)])
    assert torch.equal(source, batch.source)
    assert torch.equal(sizes, batch.source_lengths)
    assert source_batch([[]])[0].tolist() == [[EOS]]


def test_batches_that_cannot_be_are_told() -> None:
    with pytest.raises(ValueError, match="index must name at least one sample, got none; leave empty batches out"):
        collate(CORPUS, [])
    with pytest.raises(ValueError, match="lines must hold at least one encoded line, got none"):
        source_batch([])
    with pytest.raises(ValueError, match="rank must be from 0 to world - 1, got rank=2 and world=2; count from 0"):
        collate(CORPUS, [1]).shard(2, 2)


def test_samples_that_are_longer_than_a_batch_are_counted() -> None:
    source, target = np.array([3, 8, 5]), np.array([4, 2, 9])
    assert long_sample_warnings((source, target), 10) == []
    (warning,) = long_sample_warnings((source, target), 8)
    assert warning == (
        "--batch 8 is less than the longest sample, of 10 tokens: 2 of 3 samples are longer and have a batch of their "
        "own each; raise --batch to 10 or lower --max-length"
    )


def test_a_large_batch_that_holds_all_samples_gives_a_warning() -> None:
    lengths = np.array([30_000, 20_000, 20_000])
    assert long_sample_warnings([lengths], 70_003) == []
    assert long_sample_warnings([np.array([3, 4])], 1 << 16) == []
    (warning,) = long_sample_warnings([lengths], 10**12)
    assert warning == (
        "--batch 1,000,000,000,000 is more than all 3 samples together, 70,003 tokens: an epoch is one step, in which "
        "all of them take memory at once; try --batch 30001"
    )
