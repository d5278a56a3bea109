"""What a page draws of a map: bytes within what a byte can say, levels that bound what is below them."""

import math

import numpy as np
import pytest
import torch

import regard
from regard.attn.maps.attention_map import AttentionMap, DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.recording.page import pyramid as pyramid_module
from regard.viz.recording.page.packing import head_facts
from regard.viz.recording.page.pyramid import MapPyramid, coarsest_level, halve


def read(weights: torch.Tensor | AttentionMap, kind: str = "self", **wanted: int) -> MapPyramid:
    found = MapPyramid(weights if isinstance(weights, AttentionMap) else DenseMap(weights), kind, **wanted)
    assert list(found.read())[-1:] == [found.q] * bool(found.q)
    return found


def soft(*shape: int) -> torch.Tensor:
    return torch.softmax(3 * torch.randn(*shape), -1)


def test_a_byte_says_its_weight() -> None:
    weights = soft(23, 31)
    found = (read(weights).levels[0] / 255.0) ** 2
    bound = 0.004 * weights.sqrt() + 4e-6
    assert bool((torch.from_numpy(found) - weights).abs().le(bound).all())


def test_a_cell_is_the_greatest_of_its_weights() -> None:
    weights = soft(513, 611)
    pyramid = read(weights)
    for level in range(coarsest_level(513, 611) + 1):
        size = 1 << level
        padded = torch.nn.functional.pad(weights, (0, -611 % size, 0, -513 % size))
        most = padded.unfold(0, size, size).unfold(1, size, size).amax((-1, -2))
        assert np.array_equal(pyramid.levels[level], pyramid.to_bytes(most))
    assert np.array_equal(halve(pyramid.levels[1]), pyramid.levels[2])


def test_greatest_weights_are_exact() -> None:
    weights = soft(29, 37)
    pyramid = read(weights, top=5)
    best = torch.topk(weights, 5)
    assert np.array_equal(pyramid.top_weights, best.values.numpy())
    assert torch.equal(weights.gather(-1, torch.from_numpy(pyramid.top_columns)), best.values)
    assert read(weights, top=50).top_weights.shape == (29, 37)


def test_rows_and_columns_in_sum() -> None:
    weights = soft(29, 37)
    pyramid = read(weights)
    entropy = -(weights * weights.log()).sum(-1)
    assert torch.from_numpy(pyramid.entropies).allclose(entropy, atol=1e-5)
    assert pyramid.entropy == pytest.approx(float(entropy.mean()), abs=1e-5)
    assert torch.from_numpy(pyramid.column_means).allclose(weights.mean(0), atol=1e-6)
    assert pyramid.sums == pytest.approx((1.0, 1.0))


@pytest.mark.parametrize("step", [1 << 9, 1 << 12, 1 << 21])
def test_blocks_of_any_size_give_the_same(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = soft(300, 280)
    whole = read(weights)
    monkeypatch.setattr(pyramid_module, "_MAX_BLOCK_WEIGHTS", step)
    parts = read(weights)
    assert all(np.array_equal(whole.levels[n], parts.levels[n]) for n in whole.levels)
    assert np.array_equal(whole.top_columns, parts.top_columns)
    assert np.array_equal(whole.thumbnails()[0], parts.thumbnails()[0])


def test_computed_equals_kept() -> None:
    q, k = torch.randn(1, 1, 300, 8), torch.randn(1, 1, 300, 8)
    seen = regard.attend(q, k, k, mask=regard.Causal(), need=regard.Need(map=True)).map
    one, other = read(seen.pick(0, 0)), read(seen.dense()[0, 0])
    assert np.array_equal(one.levels[0], other.levels[0])


def test_a_sink_stands_apart() -> None:
    weights = soft(41, 43) * 0.4
    weights[:, 7] += 0.6
    pyramid = read(weights)
    assert pyramid.sinks == (7,)
    assert np.array_equal(pyramid.sink_weights[:, 0], weights[:, 7].numpy())
    assert not pyramid.levels[0][:, 7].any()
    whole, bare = pyramid.thumbnails()
    assert whole[:, 7].min() > 190
    assert not bare[:, 7].any()
    left = weights.clone()
    left[:, 7] = 0
    left = left / left.sum(-1, keepdim=True)
    assert np.abs(bare.astype(int) - pyramid.to_bytes(left)).max() <= 2
    assert read(weights, "gate").sinks == ()


@pytest.mark.parametrize("shape", [(2, 3), (3, 43), (5, 5), (41, 43)])
def test_the_sinks_of_a_page_are_those_of_the_analysis(shape: tuple[int, int]) -> None:
    weights = soft(*shape) * 0.5
    weights[:, 2] += 0.5
    recording = Recording((RecordedMap("layer", "self", DenseMap(weights[None, None])),))
    assert read(weights).sinks == recording.sinks()
    assert 2 in recording.sinks()
    # half of the weight among five keys is a sink in both
    half = torch.tensor([[0.5, 0.1, 0.2, 0.1, 0.1]]).expand(5, 5)
    assert read(half).sinks == (0,)


def test_weights_below_nought_lie_around_the_middle() -> None:
    weights = torch.tensor([[-2.0, 0.0, 0.5], [1.0, -0.125, 2.0]])
    pyramid = read(weights)
    assert (pyramid.signed, pyramid.scale) == (True, 2.0)
    assert pyramid.levels[0].tolist() == [[1, 128, 192], [218, 96, 255]]
    assert halve(pyramid.levels[0], True).tolist() == [[1, 255]]
    assert pyramid.thumbnails()[0].tolist() == pyramid.levels[0].tolist()
    # what was only rounded is not
    assert not read(torch.tensor([[-1e-8, 1.0000001]])).signed


def test_weights_that_are_no_numbers_are_counted() -> None:
    weights = soft(5, 7)
    weights[2, 3], weights[4, 0] = math.nan, math.inf
    pyramid = read(weights)
    assert pyramid.nonfinite == 2
    assert pyramid.levels[0][2, 3] == pyramid.levels[0][4, 0] == 0
    assert bool(torch.isnan(weights[2, 3]))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (1, 700)])
def test_narrow_and_empty_maps(shape: tuple[int, int]) -> None:
    pyramid = read(soft(*shape), top=3)
    assert pyramid.levels[coarsest_level(*shape)].shape[0] == shape[0]
    assert pyramid.thumbnails()[0].shape == (shape[0], min(48, shape[1]))


def test_nothing_is_written_to_the_weights() -> None:
    weights = soft(41, 43)
    before = weights.clone()
    read(weights)
    assert torch.equal(weights, before)


def test_what_is_told_to_be_a_difference_is_signed() -> None:
    """However small it is: of a long text no weight goes far from another."""
    w = torch.randn(7, 11) * 1e-5
    pyramid = read(w, signed=True)
    assert pyramid.signed
    assert not read(w).signed
    assert "entropy" not in head_facts(pyramid, 3, [])
    assert head_facts(read(w.abs()), 3, [])["entropy"]
