"""A KVCache is a value: what was handed out never changes, and growing it copies little."""

import itertools
from typing import Any

import pytest
import torch
from tests.for_each import for_each

import regard
from regard import Attention, KVCache, Lengths
from regard.attn import Segment, kv_cache, nonfinite


def memory(n: int, batch: tuple[int, ...] = (2, 3)) -> KVCache:
    return KVCache(torch.randn(*batch, n, 5), torch.randn(*batch, n, 7))


def more(n: int, batch: tuple[int, ...] = (2, 3)) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(*batch, n, 5), torch.randn(*batch, n, 7)


@pytest.mark.parametrize("start", [0, 1, 4])
def test_extended_is_concatenated(start: int) -> None:
    grown = first = memory(start)
    keys, values = [first.keys.clone()], [first.values.clone()]
    for n in (1, 3, 0, 20, 1):
        k, v = more(n)
        before, kept = grown, grown.keys.clone()
        grown = grown.extend(k, v)
        keys.append(k)
        values.append(v)
        assert torch.equal(before.keys, kept)
        assert torch.equal(grown.keys, torch.cat(keys, -2))
        assert torch.equal(grown.values, torch.cat(values, -2))
        assert len(grown) == sum(k.shape[-2] for k in keys)
    assert torch.equal(first.keys, keys[0])


def test_two_futures_of_one_past_do_not_meet() -> None:
    past = memory(3).extend(*more(1))
    kept = past.keys.clone()
    (k1, v1), (k2, v2) = more(2), more(1)
    one = past.extend(k1, v1)
    other = past.extend(k2, v2)
    further = one.extend(k2, v2)
    assert torch.equal(past.keys, kept)
    assert torch.equal(one.keys, torch.cat([kept, k1], -2))
    assert torch.equal(other.keys, torch.cat([kept, k2], -2))
    assert torch.equal(further.keys, torch.cat([kept, k1, k2], -2))
    assert torch.equal(one.values[..., 4:, :], v1)


def test_the_first_memory_is_never_written_into() -> None:
    keys, values = more(4)
    kept = keys.clone(), values.clone()
    KVCache(keys, values).extend(*more(2)).extend(*more(1))
    assert torch.equal(keys, kept[0])
    assert torch.equal(values, kept[1])


@torch.no_grad()
def test_growing_one_by_one_moves_the_storage_seldom() -> None:
    grown, places = memory(1), []
    for _ in range(200):
        grown = grown.extend(*more(1))
        places.append(grown.keys.data_ptr())
    moves = sum(a != b for a, b in itertools.pairwise(places))
    assert moves <= 8  # it doubles


def test_a_gradient_reaches_everything_remembered() -> None:
    k, v = (t.requires_grad_() for t in more(2))
    k2, v2 = (t.requires_grad_() for t in more(1))
    grown = KVCache(k, v).extend(k2, v2)
    grown.keys.sum().backward()
    assert torch.equal(k.grad, torch.ones_like(k))
    assert torch.equal(k2.grad, torch.ones_like(k2))


def test_extending_without_gradient_does_not_spoil_a_backward() -> None:
    past = memory(3).extend(*more(1))
    w = torch.ones(2, 3, 4, 5, requires_grad=True)
    loss = (past.keys * w).sum()
    past.extend(*more(1))
    loss.backward()  # the kept keys must still be those of the forward
    assert torch.equal(w.grad, past.keys)


def test_a_step_without_gradient_does_not_spoil_a_backward_in_flight() -> None:
    with torch.no_grad():
        past = memory(3).extend(*more(1))  # has room to grow
    w = torch.ones(2, 3, 4, 5, requires_grad=True)
    loss = (past.keys * w).sum()
    with torch.no_grad():
        past.extend(*more(1))
    loss.backward()
    assert torch.equal(w.grad, past.keys)


def test_steps_with_gradient_are_all_in_flight_at_once() -> None:
    k, v = (t.requires_grad_() for t in more(2))
    past, losses, added = KVCache(k, v), [], []
    for _ in range(4):
        added.append([t.requires_grad_() for t in more(1)])
        past = past.extend(*added[-1])
        losses.append(past.keys.square().sum() + past.values.square().sum())
    sum(losses).backward()
    torch.testing.assert_close(k.grad, 8 * k.detach())
    for n, (one, other) in enumerate(added):
        torch.testing.assert_close(one.grad, 2 * (4 - n) * one.detach())
        torch.testing.assert_close(other.grad, 2 * (4 - n) * other.detach())


def test_positions_grow_with_the_keys() -> None:
    k, v = more(2)
    grown = KVCache(k, v, torch.tensor([4, 6])).extend(*more(1), torch.tensor([9]))
    assert grown.positions.tolist() == [4, 6, 9]


@for_each("kind", ["one", "per head", "score", "plain"])
def test_a_cache_of_autocast_is_read_outside(kind: str) -> None:
    x, mask = torch.randn(2, 5, 6, requires_grad=True), Lengths(torch.tensor([5, 3]))
    several = [Attention(), Attention(regard.scores.Cosine())]
    layers: dict[str, Any] = {
        "one": regard.MultiHead(6, 2),
        "per head": regard.MultiHead(6, 2, attention=several),
        "score": Attention(regard.scores.Bilinear(6, 6)),
        "plain": Attention(),
    }
    layer = layers[kind]
    with torch.autocast("cpu", torch.bfloat16):
        cache = layer.project_kv(x, x.bfloat16())
    wide = KVCache(cache.keys.float(), cache.values.float())
    assert cache.values.dtype == torch.bfloat16
    for _ in range(2):  # the second call has a plan
        for allowed in (None, mask):
            torch.testing.assert_close(layer(x, cache, mask=allowed), layer(x, wide, mask=allowed))
    out = layer(x, cache)
    out.sum().backward()
    assert out.dtype == torch.float32


def test_reorder_takes_samples() -> None:
    past = memory(4).extend(*more(2))
    index = torch.tensor([1, 1, 0])
    got = past.reorder(index)
    assert torch.equal(got.keys, past.keys[index])
    assert torch.equal(got.values, past.values[index])
    longer = got.extend(*more(1, (3, 3)))
    assert torch.equal(longer.keys[..., :6, :], past.keys[index])
    rows = KVCache(*more(2), torch.tensor([[0, 1], [3, 4]])).reorder(torch.tensor([1, 0])).positions
    assert rows.tolist() == [[3, 4], [0, 1]]


def test_a_segment_keeps_the_last_states_without_gradient() -> None:
    x = torch.randn(2, 5, 3, requires_grad=True)
    past = Segment(4)
    assert past.before(x) is x
    past = past.extend(x)
    assert torch.equal(past.states, x[:, -4:])
    assert not past.states.requires_grad
    y = torch.randn(2, 2, 3, requires_grad=True)
    assert torch.equal(past.before(y), torch.cat([x[:, -4:], y], 1))
    assert torch.equal(past.extend(y).states, torch.cat([x[:, -2:], y], 1))
    assert torch.equal(past.states, x[:, -4:])
    assert Segment(0).extend(x).states.shape == (2, 0, 3)
    assert torch.equal(Segment(9).extend(x).states, x)


def test_a_memory_is_searched_for_nan_once_and_a_longer_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr("regard.attn.kv_cache.finite", lambda *tensors: looks.append(1) or nonfinite.finite(*tensors))
    layer, q, k = Attention(), torch.randn(2, 1, 5), torch.randn(2, 4, 5)
    memory, mask = layer.project_kv(k), Lengths(torch.tensor([4, 2]))
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(layer(q, memory, mask=mask), layer(q, k, mask=mask))
        assert len(looks) == 1
        longer = memory.extend(torch.full((2, 1, 5), torch.nan), torch.full((2, 1, 5), torch.nan))
        seen = layer(q, longer, mask=Lengths(torch.tensor([5, 2])))
    assert len(looks) == 2
    assert seen[0].isnan().all()
    assert seen[1].isfinite().all()


def test_only_new_keys_are_scanned_for_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    scanned: list[int] = []
    original = kv_cache.finite

    def finite(*tensors: torch.Tensor) -> bool:
        scanned.append(tensors[0].shape[-2])
        return original(*tensors)

    monkeypatch.setattr(kv_cache, "finite", finite)
    with torch.no_grad():
        cache = KVCache(torch.randn(2, 7, 3), torch.randn(2, 7, 3))
        assert cache.finite
        for _ in range(3):
            cache = cache.extend(torch.randn(2, 1, 3), torch.randn(2, 1, 3))
            assert cache.finite
        longer = cache.extend(torch.randn(2, 2, 3), torch.randn(2, 2, 3)).reorder(torch.tensor([1, 1, 0]))
        assert longer.finite
        broken = cache.extend(torch.full((2, 1, 3), torch.nan), torch.randn(2, 1, 3))
        assert not broken.finite
        assert not broken.extend(torch.randn(2, 1, 3), torch.randn(2, 1, 3)).finite
    assert scanned == [7, 1, 1, 1, 2, 1, 2]
