"""What a map may not look at: told by every way a model can say it, kept as a rule, stored and cut with the map."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.attn.maps.attention_map import DenseMap, LazyMap
from regard.kernels.torch_versions import at_least
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording

B, H, Q, D = 2, 3, 7, 5
CAUSAL = torch.ones(Q, Q, dtype=torch.bool).tril()
PADDED = torch.arange(Q) < torch.tensor([[7], [4]])  # (b, k)


class Written(nn.Module):
    """Attention as somebody wrote it."""

    def __init__(self, attend: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.attend = attend

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x)


def eager(hidden: float) -> Callable[[Tensor], Tensor]:
    def attend(x: Tensor) -> Tensor:
        scores = (x @ x.mT).masked_fill(~CAUSAL, hidden)
        return scores.softmax(-1) @ x

    return attend


def sdpa(**names: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: F.scaled_dot_product_attention(x, x, x, **names)


def floats(mask: Tensor, least: float) -> Tensor:
    return torch.zeros(mask.shape).masked_fill(~mask, least)


LEAST = torch.finfo(torch.float32).min
WAYS: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "is_causal": (sdpa(is_causal=True), CAUSAL),
    "a mask of booleans": (sdpa(attn_mask=CAUSAL), CAUSAL),
    "padding": (sdpa(attn_mask=PADDED[:, None, None]), PADDED[:, None, None]),
    "both": (sdpa(attn_mask=CAUSAL & PADDED[:, None, None]), CAUSAL & PADDED[:, None, None]),
    "a bias of -inf": (sdpa(attn_mask=floats(CAUSAL, -torch.inf)), CAUSAL),
    "a bias of the least": (sdpa(attn_mask=floats(CAUSAL, LEAST)), CAUSAL),
    "eager": (eager(-torch.inf), CAUSAL),
    "eager, the least": (eager(LEAST), CAUSAL),
    "eager, ten thousand": (eager(-1e4), CAUSAL),
}


def heard(attend: Callable[[Tensor], Tensor], **options: Any) -> RecordedMap:
    model = Written(attend)
    torch.manual_seed(0)
    with regard.record(model, **options) as tape:
        model(torch.randn(B, H, Q, D))
    assert tape[0].verified
    return tape[0]


@pytest.mark.parametrize("keep", ["qk", "weights"])
@pytest.mark.parametrize("name", WAYS)
def test_every_way_to_mask_is_told(name: str, keep: str, tmp_path: Path) -> None:
    attend, mask = WAYS[name]
    one = heard(attend, keep=keep)
    wanted = mask.expand(B, H, Q, Q)
    found = one.allowed()
    assert torch.equal(found, wanted)
    assert torch.equal(one.weights.dense() > 0, wanted)  # of random scores, what is nought is masked
    assert torch.equal(one.allowed(slice(2, 5)), wanted[:, :, 2:5])
    assert torch.equal(one.allowed(torch.tensor([6, 0])), wanted[:, :, [6, 0]])
    # it goes with the map, wherever that goes
    tape = Recording((one,))
    again = Recording.load(tape.save(tmp_path / "a.safetensors"))
    some = again.select(heads=[2, 0], sample=1)[0]
    assert torch.equal(again[0].allowed(), wanted)
    assert torch.equal(some.allowed(), wanted[1:, [2, 0]])
    assert torch.equal(again[0].weights.pick(1, 2).allowed(), wanted[1, 2])
    assert torch.equal(again.mean("heads")[0].allowed(), wanted[:, :1])
    assert torch.equal(again.shares()[0].allowed(), wanted)
    assert torch.equal(again.difference(tape)[0].allowed(), wanted)


def test_rows_and_heads_that_were_chosen() -> None:
    for keep in ("qk", "weights"):
        one = heard(sdpa(attn_mask=CAUSAL & PADDED[:, None, None]), rows=[5, 1], heads=[1], keep=keep)
        assert torch.equal(one.allowed(), (CAUSAL & PADDED[:, None, None]).expand(B, H, Q, Q)[:, 1:2][:, :, [5, 1]])


def test_nothing_is_masked() -> None:
    assert heard(sdpa()).allowed() is None
    assert heard(sdpa(), keep="weights").allowed() is None
    biased = heard(sdpa(attn_mask=torch.randn(Q, Q)))
    assert bool(biased.allowed().all())


@pytest.mark.parametrize("name", ["sparsemax", "additive"])
def test_what_is_stored_as_weights_keeps_its_rule(name: str, tmp_path: Path) -> None:
    layers = {
        "sparsemax": regard.Attention(regard.Dot(), normalize=regard.Sparsemax()),
        "additive": regard.Attention(regard.Additive(D, D, 3)),
    }
    layer, x = layers[name], torch.randn(B, Q, D)
    with regard.record(layer) as tape:
        layer(x, x, mask=regard.Causal() & regard.Lengths(torch.tensor([7, 4])))
    wanted = CAUSAL & PADDED[:, None]
    assert torch.equal(tape[0].allowed(), wanted)
    again = Recording.load(tape.save(tmp_path / "a.safetensors"))
    assert isinstance(again[0].weights, DenseMap)
    assert torch.equal(again[0].allowed(), wanted)
    # a second time, too
    assert torch.equal(Recording.load(again.save(tmp_path / "b.safetensors"))[0].allowed(), wanted)


def test_a_rule_is_no_matrix(tmp_path: Path) -> None:
    """Causality of 3,000 tokens: neither the map nor its file holds a number a pair."""
    n = 3_000
    x = torch.randn(1, 1, n, 2)
    model = Written(sdpa(is_causal=True))
    with regard.record(model) as tape:
        model(x)
    assert isinstance(tape[0].weights, LazyMap)
    path = tape.save(tmp_path / "a.safetensors")
    assert path.stat().st_size < 40 * n
    again = Recording.load(path)
    assert torch.equal(again[0].allowed(slice(2_000, 2_002))[0, 0].sum(-1), torch.tensor([2_001, 2_002]))


@pytest.mark.parametrize("name", ["booleans", "-inf", "the least", "eager", "padded"])
def test_a_matrix_that_follows_a_rule_is_kept_as_one(name: str, tmp_path: Path) -> None:
    """A causal mask comes as a matrix, and is told by its rule: linear in memory, the same in all it says."""
    n = 80
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    padded = causal & (torch.arange(n) < torch.tensor([n, 50])[:, None, None, None])
    ways = {
        "booleans": (sdpa(attn_mask=causal), causal),
        "-inf": (sdpa(attn_mask=floats(causal, -torch.inf)), causal),
        "the least": (sdpa(attn_mask=floats(causal, LEAST)[None, None]), causal),
        "eager": (lambda x: (x @ x.mT + floats(causal, LEAST)).softmax(-1) @ x, causal),
        "padded": (sdpa(attn_mask=floats(padded, LEAST)), padded),
    }
    attend, mask = ways[name]
    x = torch.randn(B, H, n, D, generator=torch.Generator().manual_seed(0))
    model = Written(attend)
    with regard.record(model) as tape:
        model(x)
        model(x)
    with regard.record(model, keep="weights") as dense:
        model(x)
    for one in tape:
        assert one.verified
        assert isinstance(one.weights, LazyMap)
        assert one.weights.call.bias is None
        assert not isinstance(one.weights.call.mask, regard.BooleanMask)
        assert torch.equal(one.allowed(), mask.expand(B, H, n, n))
        torch.testing.assert_close(one.weights.dense(), dense[0].weights.dense(), atol=1e-6, rtol=0)
    assert torch.equal(dense[0].allowed(), mask.expand(B, H, n, n))
    # two maps of q and k, and hardly more
    assert tape.save(tmp_path / "a.safetensors").stat().st_size < 2 * 2 * 4 * x.numel() + 6_000
    assert dense.save(tmp_path / "b.safetensors").stat().st_size < 4 * B * H * n * n + 6_000


def test_what_only_looks_like_a_rule_stays_as_it_is() -> None:
    n = 80
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    nothing = floats(causal, LEAST)
    nothing[7] = LEAST  # a row of the least alone is one of equal weights
    for mask in (floats(causal, LEAST) + 0.1 * causal, nothing, floats(torch.rand(n, n) > 0.5, LEAST)):
        model = Written(sdpa(attn_mask=mask))
        with regard.record(model) as tape:
            model(torch.randn(B, H, n, D))
        assert tape[0].verified
        assert isinstance(tape[0].weights, LazyMap)
        assert tape[0].weights.call.mask is None


@pytest.mark.parametrize("keep", ["qk", "weights"])
@pytest.mark.parametrize("least", [LEAST, -1e9, -1e4])
def test_a_row_hidden_by_a_finite_number_looks_at_all_its_keys(least: float, keep: str) -> None:
    """What is masked has weight nought: padding on the left leaves rows in which nothing but the least is added."""
    left = CAUSAL & PADDED.flip(-1)[:, None, None]  # sample 1 has three places before its text
    wanted = left | ~left.any(-1, keepdim=True)
    one = heard(sdpa(attn_mask=floats(left, least)), keep=keep)
    assert torch.equal(one.allowed(), wanted.expand(B, H, Q, Q))
    assert torch.equal(one.weights.dense() > 0, one.allowed())
    assert torch.equal(one.allowed(slice(1, 3)), wanted.expand(B, H, Q, Q)[:, :, 1:3])


def test_a_row_hidden_by_minus_infinity_looks_at_nothing() -> None:
    mask = CAUSAL.clone()
    mask[2] = False
    found = regard.attend(*[torch.randn(B, Q, D)] * 3, bias=floats(mask, -torch.inf), need=regard.Need(map=True)).map
    assert torch.equal(found.allowed(), mask.expand(B, Q, Q))
    assert torch.equal(found.dense() > 0, found.allowed())


def test_what_is_added_hides_beside_what_a_mask_leaves() -> None:
    """A number is low or high among those that may be looked at."""
    added = torch.zeros(Q, Q)
    added[:, 0], added[4, 1:] = -1e9, -1e9
    found = regard.attend(
        *[torch.randn(B, Q, D)] * 3, bias=added, mask=~torch.eye(Q, dtype=torch.bool), need=regard.Need(map=True)
    ).map
    assert torch.equal(found.dense() > 0, found.allowed())
    assert found.allowed()[0, 4].tolist() == [True] * 4 + [False] + [True] * 2


def test_a_slope_that_goes_on_for_long_hides_what_is_far() -> None:
    """ALiBi as numbers that are added: at a slope of one a key ten thousand places off has nothing, a near one has."""
    n = 20_003
    far = -torch.arange(n - 1, -1, -1.0)[None]
    found = regard.attend(torch.ones(1, 2), torch.ones(n, 2), bias=far - 5_000, need=regard.Need(map=True)).map
    allowed = found.allowed()[0]
    assert int(allowed.sum()) == 10_000
    assert bool(allowed[-10_000:].all())


def test_keys_that_are_not_there_yet_are_masked() -> None:
    """The steps of a generation, stitched, allow what one causal pass does."""
    steps = [
        RecordedMap("a", "self", DenseMap(torch.rand(1, 1, q, k)), call=n, step=s)
        for n, (s, q, k) in enumerate([(0, 3, 3), (3, 1, 4), (4, 1, 5)])
    ]
    (whole,) = Recording(tuple(steps)).stitch()
    seen = whole.allowed()
    assert seen[0, 0].sum(-1).tolist() == [3, 3, 3, 4, 5]
    assert torch.equal(whole.allowed(torch.tensor([4, 1])), seen[:, :, [4, 1]])


@pytest.mark.skipif(not at_least("2.7"), reason="flex_attention of torch 2.6 takes widths that are powers of two alone")
def test_flex_attention_tells_its_mask() -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    block = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, Q, Q, device="cpu")
    for keep in ("qk", "weights"):
        one = heard(lambda x: flex.flex_attention(x, x, x, block_mask=block), keep=keep)
        assert torch.equal(one.allowed(), CAUSAL.expand(B, H, Q, Q))
        assert torch.equal(one.weights.pick(0, 1).allowed(slice(1, 3)), CAUSAL[1:3])


def test_a_file_whose_rule_does_not_fit(tmp_path: Path) -> None:
    rule = DenseMap(torch.rand(1, 1, 4, 4), heard(sdpa(is_causal=True)).weights)
    path = Recording((RecordedMap("a", "self", rule, certificate=0.0),)).save(tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=r"the mask must be \(1, 1, 4, 4\) as the weights, got \(2, 3, 7, 7\)"):
        Recording.load(path)
