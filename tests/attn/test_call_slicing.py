"""A map that was picked from is cut before it is computed: every pick is the same part of the weights."""

import pytest
import torch
from tests.attn.backends.cases import CASES, Case, Sizes, close, resolved, tensors
from torch import Tensor

import regard
from regard.attn.call_slicing import select
from regard.attn.maps.attention_map import LazyMap
from regard.attn.terms.normalizer import Normalizer

PICKS: dict[str, tuple[int | slice, ...]] = {
    "sample": (1,),
    "head": (slice(None), 2),
    "both": (-1, 1),
    "some heads": (0, slice(1, 3)),
    "some samples": (slice(1, 2), slice(0, 3, 2)),
}


@pytest.mark.parametrize("pick", PICKS)
@pytest.mark.parametrize("case", CASES[::5], ids=str)
def test_a_pick_is_a_part_of_the_weights(case: Case, pick: str) -> None:
    got = regard.attend(*tensors(), **case.terms(), need=regard.Need(map=True, weights=True))
    one = got.map.pick(*PICKS[pick])
    want = got.weights.detach()[PICKS[pick]]
    assert one.shape == want.shape
    close(one.dense(), want, "dense")
    close(one[1:4, 2:], want[..., 1:4, 2:], "a part")


@pytest.mark.parametrize(
    "terms", [{}, {"bias": regard.ALiBi(6)}, {"normalize": regard.Softmax(regard.Learnable(2.0, 6))}]
)
def test_heads_that_share_keys_are_picked_with_theirs(terms: dict[str, object]) -> None:
    q, k = torch.randn(2, 6, 5, 3), torch.randn(2, 3, 7, 3)
    lengths = regard.Lengths(torch.tensor([4, 7]))
    got = regard.attend(q, k, mask=lengths, need=regard.Need(weights=True, map=True), **terms)
    want = got.weights.detach()
    for h in range(6):
        close(got.map.pick(1, h).dense(), want[1, h], "a head")
    close(got.map.pick(slice(None), slice(1, 6, 2)).dense(), want[:, 1:6:2], "some heads")
    close(got.map.pick(0).pick(3).dense(), want[0, 3], "a pick of a pick")
    close(got.map.pick(slice(None), slice(2, 5)).pick(1, 1).dense(), want[1, 3], "a head of some heads")


def test_a_mask_for_each_head_is_cut_with_it() -> None:
    q, k = torch.randn(2, 3, 5, 3), torch.randn(2, 3, 7, 3)
    allowed = torch.rand(2, 3, 5, 7) > 0.4
    mask = regard.BooleanMask(allowed) & regard.Window(5, 5)
    got = regard.attend(q, k, mask=mask, need=regard.Need(weights=True, map=True))
    for n in range(2):
        for h in range(3):
            close(got.map.pick(n, h).dense(), got.weights[n, h], "a head")


class Uneven(Normalizer):
    """The softmax of head h at temperature h + 1: what a reader may write."""

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        return torch.softmax(scores / torch.arange(1, scores.shape[-3] + 1).view(-1, 1, 1), -1)


def test_a_term_of_ones_own_may_know_its_heads() -> None:
    q = torch.randn(2, 3, 5, 3)
    got = regard.attend(q, q, normalize=Uneven(), need=regard.Need(weights=True, map=True))
    close(got.map.pick(1, 2).dense(), got.weights[1, 2], "a head")
    close(got.map.pick(slice(None), slice(1, 3)).pick(0, 1).dense(), got.weights[0, 2], "a head of some")


def test_a_long_map_is_read_tile_by_tile_and_head_by_head() -> None:
    n = 32_768
    q, k = torch.randn(1, 4, n, 8), torch.randn(1, 4, n, 8)
    call = regard.attend(q[..., :1, :], k, need=regard.Need(map=True)).map.call
    seen = LazyMap(call.__class__(**{**{f: getattr(call, f) for f in call.__slots__}, "q": q, "queries": q}))
    one = seen.pick(0, 3)
    sizes = []
    plain = regard.Softmax.weights
    regard.Softmax.weights = lambda self, s, a: (sizes.append(s.numel()), plain(self, s, a))[1]
    try:
        tile = one[20_000:20_016, 100:200]
    finally:
        regard.Softmax.weights = plain
    assert tile.shape == (16, 100)
    assert sizes == [16 * n]
    close(tile, torch.softmax(q[0, 3, 20_000:20_016] @ k[0, 3].T / 8**0.5, -1)[:, 100:200], "a tile")


@pytest.mark.parametrize("index", [(2,), (0, 3), (-3,)])
def test_what_is_not_there_is_not_picked(index: tuple[int, ...]) -> None:
    q = torch.randn(2, 3, 5, 3)
    with pytest.raises(IndexError, match=r"is not on axis \d of a map, which has \d; use 0 to"):
        regard.attend(q, q, need=regard.Need(map=True)).map.pick(*index)


def test_the_length_of_each_sample_survives_the_cut() -> None:
    gaussian = Case("dot", "gaussian").terms()["bias"]
    mask = regard.Causal() & regard.Lengths(torch.tensor([3, 9]))
    call = resolved(*tensors(), mask=mask, bias=gaussian)
    assert call.total.flatten().tolist() == [3, 7]
    assert call.slice(slice(0, 2), slice(0, 4)).total.flatten().tolist() == [3, 7]
    assert select(call, 0, [1]).total.flatten().tolist() == [7]
    assert resolved(*tensors(), mask=mask).total == 7


@pytest.mark.parametrize(
    "normalize",
    [
        regard.normalizers.WithNullSlot(score=torch.tensor([0.0, 1.0, 3.0]).reshape(3, 1, 1)),
        regard.normalizers.WithNullSlot(score=torch.zeros(3, 1, 1, requires_grad=True) + 1.0),
        regard.normalizers.WithNullSlot(regard.Softmax(regard.Learnable(0.5, heads=3))),
    ],
    ids=["tensor", "computed", "inside"],
)
def test_numbers_per_head_are_cut_with_the_heads(normalize: Normalizer) -> None:
    q, k, v = tensors(Sizes(b=2, h=3, q=5, k=5, d=3, v=3))
    terms = {"normalize": normalize, "mask": regard.Lengths([4, 2])}
    seen = regard.attend(q, k, v, **terms, need=regard.Need(map=True, weights=True))
    close(seen.map.pick(slice(0, 2), slice(1, 3)).dense(), seen.weights[:, 1:3], "some heads")
    close(seen.map.pick(1, 2).dense(), seen.weights[1, 2], "a head")
    # heads are the only leading axis, each with its own length
    q, k, v, mask = q[0], k[0], v[0], regard.Lengths([5, 3, 0])
    want = regard.attention(q, k, v, normalize=normalize, mask=mask, backend="eager")
    close(regard.attention(q, k, v, normalize=normalize, mask=mask, backend="blocked"), want, "blocked")


def test_heads_that_mix_are_computed_together() -> None:
    q, mask = torch.randn(3, 6, 4), regard.BooleanMask(torch.rand(3, 6, 6) < 0.7)
    terms = {"score": regard.scores.TalkingScores(3), "normalize": regard.normalizers.TalkingWeights(3)}
    for term in terms.values():
        torch.nn.init.normal_(term.mixture)
    blocked, eager = (regard.attention(q, q, **terms, mask=mask, backend=name) for name in ("blocked", "eager"))
    close(blocked, eager, "one axis of heads")
    whole = regard.attend(q[None], q[None], **terms, need=regard.Need(map=True, weights=True))
    close(whole.map.pick(0, 1).dense(), whole.weights[0, 1], "a head")
    with pytest.raises(
        ValueError, match="mixes heads, or was written elsewhere and may tell them apart; leave heads out"
    ):
        whole.map.select_heads([1])
