"""Masks are sets of pairs: joined as sets are, cut as tensors are, and never wrong about a tile."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from tests.attn.backends.cases import resolved
from tests.for_each import for_each

import regard
from regard import BooleanMask, Causal, Documents, Lengths, Mask, Prefix, Window
from regard.attn.backends._block_plan import spans
from regard.attn.terms.tiles import insert_head_axes, tiles
from regard.masks import (
    Axial,
    CrissCross,
    Dilated,
    Edges,
    Fixed,
    Global,
    Neighbourhood,
    RandomBlocks,
    Strided,
    Windows,
)

B, H = 2, 3
CPU = torch.device("cpu")


def dense(mask: Mask, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    """All pairs, as (b, h, q, k)."""
    return insert_head_axes(mask.dense(i, j), 4).expand(B, H, i.shape[-1], j.shape[-1])


def leaves(q: int, k: int) -> st.SearchStrategy[Mask]:
    side = st.one_of(st.none(), st.integers(0, 6))
    seeds = st.integers(0, 1000)

    def drawn(seed: int, *shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=torch.Generator().manual_seed(seed))

    return st.one_of(
        st.just(Causal()),
        st.builds(Window, side, side),
        st.builds(Prefix, st.integers(0, k)),
        seeds.map(lambda n: Prefix((drawn(n, B) * (k + 1)).long())),
        seeds.map(lambda n: Lengths((drawn(n, B) * (k + 1)).long())),
        seeds.map(lambda n: Documents((drawn(n, B, k) * 3).long(), (drawn(n + 1, B, q) * 3).long())),
        seeds.map(lambda n: Documents((drawn(n, k) * 3).long().sort().values, (drawn(n + 1, q) * 3).long())),
        seeds.map(lambda n: Edges((drawn(n, 2, n % 23) * min(q, k)).long())),
        st.builds(Dilated, st.integers(1, 3), st.integers(1, 3)),
        st.builds(Strided, st.integers(1, 4)),
        st.integers(1, 4).flatmap(lambda stride: st.builds(Fixed, st.just(stride), st.integers(1, stride))),
        st.builds(Global, st.lists(st.integers(0, k), max_size=3)),
        st.integers(1, 4).map(lambda size: RandomBlocks(12, size, 2, seed=k)),
        st.integers(0, 2).map(lambda axis: Axial((2, 3, 2), axis)),
        st.just(CrissCross((3, 4))),
        st.integers(0, 1).map(lambda shift: Windows((4, 3), (2, 3), shift)),
        st.sampled_from([((3, 4), 2, (1, 2)), ((12,), 3, 2), ((2, 2, 3), 2, 1)]).map(lambda a: Neighbourhood(*a)),
        seeds.map(lambda n: BooleanMask(drawn(n, B, H, q, k) < 0.6)),
        seeds.map(lambda n: BooleanMask(drawn(n, B, 1, 1, k) < 0.8)),
        seeds.map(lambda n: BooleanMask(drawn(n, 1, H, q, 1) < 0.8)),
    )


def masks(q: int, k: int) -> st.SearchStrategy[Mask]:
    def joined(inner: st.SearchStrategy[Mask]) -> st.SearchStrategy[Mask]:
        return st.one_of(
            st.tuples(inner, inner).map(lambda ab: ab[0] & ab[1]),
            st.tuples(inner, inner).map(lambda ab: ab[0] | ab[1]),
            inner.map(lambda a: ~a),
        )

    return st.recursive(leaves(q, k), joined, max_leaves=4)


@st.composite
def squares(draw: st.DrawFn) -> tuple[Mask, Mask, int, int]:
    q, k = draw(st.integers(1, 9)), draw(st.integers(1, 11))
    return draw(masks(q, k)), draw(masks(q, k)), q, k


@settings(max_examples=60)
@given(squares())
def test_joined_as_sets_are(square: tuple[Mask, Mask, int, int]) -> None:
    a, b, q, k = square
    i, j = torch.arange(q), torch.arange(k)
    of_a, of_b = dense(a, i, j), dense(b, i, j)
    assert torch.equal(dense(a & b, i, j), of_a & of_b)
    assert torch.equal(dense(a | b, i, j), of_a | of_b)
    assert torch.equal(dense(~a, i, j), ~of_a)
    assert torch.equal(dense(~(a & b), i, j), dense(~a | ~b, i, j))
    assert torch.equal(dense(~~a, i, j), of_a)
    assert repr(a & b)


@settings(max_examples=80)
@given(squares(), st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 5]), st.integers(-3, 3))
def test_a_verdict_on_a_tile_is_never_wrong(square: tuple[Mask, Mask, int, int], rows: int, step: int, at: int) -> None:
    mask, _, q, k = square
    i, j = torch.arange(at, at + q), torch.arange(k)
    whole = dense(mask, i, j)
    some, every = (
        insert_head_axes(t, 4).expand(B, H, -(-q // rows), -(-k // step))
        for t in mask.tile_coverage(tiles(i, rows), tiles(j, step))
    )
    for r in range(some.shape[-2]):
        for c in range(some.shape[-1]):
            tile = whole[..., r * rows : (r + 1) * rows, c * step : (c + 1) * step].flatten(-2)
            assert not (tile.any(-1) & ~some[..., r, c]).any(), "an empty verdict on a tile that is not"
            assert not (~tile.all(-1) & every[..., r, c]).any(), "a full verdict on a tile that is not"


@settings(max_examples=60)
@given(squares())
def test_no_query_before_the_first_has_a_key(square: tuple[Mask, Mask, int, int]) -> None:
    mask, _, q, k = square
    first = mask.first_query
    if first is not None:
        assert not dense(mask, torch.arange(first - q, first), torch.arange(k)).any()


@settings(max_examples=50)
@given(squares(), st.data())
def test_part_and_sample_are_slices(square: tuple[Mask, Mask, int, int], data: st.DataObject) -> None:
    mask, _, q, k = square
    i, j = torch.arange(q), torch.arange(k)
    mask = mask.fit((B, H), q, k, CPU)
    whole = dense(mask, i, j)
    start = data.draw(st.integers(0, q - 1))
    rows = slice(start, data.draw(st.integers(start + 1, q)))
    columns = torch.tensor(sorted(data.draw(st.sets(st.integers(0, k - 1), min_size=1))))
    part = mask.slice(rows, columns)
    assert torch.equal(dense(part, i[rows], j[columns]), whole[..., rows, :][..., columns])
    for n in range(B):
        one = insert_head_axes(part.sample(n).dense(i[rows], j[columns]), 4)
        assert torch.equal(one.expand(1, H, len(i[rows]), len(columns)), whole[n : n + 1, :, rows][..., columns])
        other = insert_head_axes(mask.sample(n).slice(rows, columns).dense(i[rows], j[columns]), 4)
        assert torch.equal(other, one)


@settings(max_examples=30)
@given(squares(), st.sampled_from([1, 2, 3, 16]))
def test_spans_hold_every_pair_that_may_look(square: tuple[Mask, Mask, int, int], rows: int) -> None:
    mask, _, q, k = square
    x = torch.zeros(B, H, q, 2), torch.zeros(B, H, k, 2), torch.zeros(B, H, k, 2)
    call = resolved(*x, mask=mask)
    whole = dense(mask, *call.positions())
    held = torch.zeros_like(whole, dtype=torch.long)
    for span in spans(call, rows):
        where = slice(None) if span.sample is None else slice(span.sample, span.sample + 1)
        held[where, :, span.rows, span.columns] += 1
        if span.full:
            assert whole[where, :, span.rows, span.columns].all(), "a full span holds a pair that may not look"
    assert (held <= 1).all(), "no pair lies in two spans"
    assert (held[whole] == 1).all(), "every pair that may look lies in a span"


@pytest.mark.parametrize("lead", [(2, 2), (2, 3), (2, 1)])
@pytest.mark.parametrize("kind", [Lengths, Prefix])
def test_leading_axes_are_the_first_axes_of_the_batch(kind: type[Mask], lead: tuple[int, int]) -> None:
    """Lengths and positions with different numbers of leading axes."""
    b, h = lead
    per_sample, per_head = torch.arange(b) + 1, torch.arange(b * h).reshape(b, h)
    j, i = torch.arange(5), torch.arange(5) - 5
    shifts = torch.arange(b) * 2, torch.arange(b * h).reshape(b, h)
    for lengths, shift in ((per_sample, shifts[1]), (per_head, shifts[0])):
        mask, at = kind(lengths), j + shift.unsqueeze(-1)
        got = insert_head_axes(mask.dense(i, at), 4).expand(b, h, 5, 5)
        covered = mask.tile_coverage(tiles(i, 1), tiles(at, 1))
        for n in range(b):
            for head in range(h):
                length, moved = (t[n] if t.ndim == 1 else t[n, head] for t in (lengths, shift))
                want = (j + moved < length).expand(5, 5)
                assert torch.equal(got[n, head], want)
                for t in covered:
                    assert torch.equal(insert_head_axes(t, 4).expand(b, h, 5, 5)[n, head], want)


@for_each(
    ("mask", "rule"),
    [
        (Causal(), lambda b, i, j: j <= i),
        (Window(2, 1), lambda b, i, j: -2 <= j - i <= 1),
        (Window(None, 1), lambda b, i, j: j - i <= 1),
        (Window(2, None), lambda b, i, j: j - i >= -2),
        (Window(None, None), lambda b, i, j: True),
        (Prefix(3), lambda b, i, j: j <= i or j < 3),
        (Prefix(torch.tensor([0, 4])), lambda b, i, j: j <= i or j < [0, 4][b]),
        (Lengths(torch.tensor([2, 5])), lambda b, i, j: j < [2, 5][b]),
        (Causal() & Lengths(torch.tensor([2, 5])), lambda b, i, j: j <= i and j < [2, 5][b]),
        (~Causal() | Window(0, 0), lambda b, i, j: j >= i),
        (Edges(torch.tensor([[0, 5, 2, 0], [4, 3, 0, 4]])), lambda b, i, j: (j, i) in {(0, 4), (5, 3), (2, 0)}),
        (Edges(torch.zeros(2, 0, dtype=torch.long)), lambda b, i, j: False),
    ],
    ids=lambda x: repr(x) if isinstance(x, Mask) else "",
)
def test_the_rule_of_each_mask(mask: Mask, rule) -> None:
    i, j = torch.tensor([3, 4, 0, 9]), torch.arange(7)
    got = dense(mask, i, j)
    for b in range(B):
        for row, at in enumerate(i.tolist()):
            for key in range(7):
                assert got[b, 0, row, key] == rule(b, at, key)


def test_documents_see_only_themselves() -> None:
    ids = torch.tensor([[0, 0, 1, 1, 1], [4, 4, 4, 2, 2]])
    i, j = torch.arange(2, 5), torch.arange(5)
    got = Documents(ids).dense(i, j)
    assert torch.equal(got, ids[:, 2:, None] == ids[:, None, :])
    other = torch.tensor([[1, 7], [2, 4]])
    assert torch.equal(Documents(ids, other).dense(i[:2], j), other[:, :, None] == ids[:, None, :])


def test_positions_of_each_sample() -> None:
    i, j = torch.tensor([[2, 3], [5, 6]]), torch.tensor([[0, 1, 2, 3], [3, 4, 5, 6]])
    for mask in (Causal(), Window(1, 0), Prefix(1)):
        apart = [mask.dense(i[n], j[n]) for n in range(2)]
        assert torch.equal(mask.dense(i, j), torch.stack(apart))


def test_a_mask_of_your_own_needs_only_dense() -> None:
    class Even(Mask):
        def dense(self, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
            return (j % 2 == 0).unsqueeze(-2).expand(*i.shape, j.shape[-1])

    q, k, v = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 6, 5), torch.randn(2, 3, 6, 7)
    want = regard.attention(q, k[..., ::2, :], v[..., ::2, :])
    for backend in ("eager", "fused", "blocked"):
        torch.testing.assert_close(regard.attention(q, k, v, mask=Even(), backend=backend), want)


@pytest.mark.parametrize("queries", [1, 2, 5])
def test_a_mask_that_hides_nothing_allows_all(queries: int) -> None:
    keys = 5
    i, j = torch.arange(keys - queries, keys), torch.arange(keys)
    windows = [Window(left, right) for left in (None, 0, 3, 4) for right in (None, 0, 1, 4)]
    for mask in (Causal(), *windows, *(Causal() & window for window in windows)):
        everything = bool(mask.dense(i, j).expand(queries, keys).all())
        assert mask.hides_nothing(queries, keys) == everything, mask
    assert not (Causal() | Window(0, 0)).hides_nothing(1, keys)  # unknown
    assert not Lengths(torch.tensor([keys])).hides_nothing(1, keys)  # needs its values


def test_lengths_of_a_list_are_those_of_a_tensor() -> None:
    torch.manual_seed(0)
    layer, x = regard.MultiHead(8, 2), torch.randn(2, 5, 8)
    lengths = torch.tensor([3, 5])
    want = layer(x, mask=Lengths(lengths))
    assert torch.equal(layer(x, mask=Lengths([3, 5])), want)
    # the equivalent that the error about key_padding_mask names
    padding = torch.arange(5) >= lengths[:, None]
    torch.testing.assert_close(layer(x, mask=~padding[:, None]), want)
    assert Lengths([3, 5]).fit((2, 2), 5, 5, torch.device("meta")).lengths.is_meta
