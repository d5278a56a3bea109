"""A recording on disk: what goes in comes out, stays small, and nothing is unpickled."""

import dataclasses
import json
import math
from pathlib import Path
from typing import get_args

import pytest
import torch
from hypothesis import given, settings, strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from tests.for_each import for_each
from tests.recording.toy import computed, kept, stack, weights

import regard
from regard.attn.maps.attention_map import DenseMap, LazyMap
from regard.common import atomic_files
from regard.recording.recorded_map import Kind, RecordedMap
from regard.recording.recording import Recording

LENGTHS = torch.tensor([11, 7])
DOCUMENTS = torch.tensor([[0] * 4 + [1] * 7, [0] * 9 + [1] * 2])
GIVEN = torch.rand(2, 3, 11, 11) > 0.3

MASKS: dict[str, object] = {
    "none": None,
    "causal": regard.Causal(),
    "window": regard.Window(2, 1),
    "lengths": regard.Lengths(LENGTHS),
    "documents": regard.Documents(DOCUMENTS),
    "prefix": regard.Prefix(3),
    "prefixes": regard.Prefix(torch.tensor([3, 5])),
    "given": GIVEN,
    "given for all": GIVEN[:1, :1].expand(2, 3, 11, 11),
    "joined": (regard.Causal() & regard.Lengths(LENGTHS)) | ~regard.Window(4, None),
}
BIASES: dict[str, object] = {
    "none": None,
    "tensor": torch.randn(3, 11, 11),
    "alibi": regard.ALiBi(3),
    "t5": regard.T5Buckets(3, buckets=8, max_distance=20),
}
SCORES: dict[str, object] = {
    "dot": regard.Dot(),
    "scaled": regard.Dot(0.3),
    "cosine": regard.Cosine(4.0),
    "bilinear": regard.Bilinear(7, 7),
    "distance": regard.Distance(),
}


def back(tape: Recording, path: Path) -> Recording:
    return Recording.load(tape.save(path))


def same(one: Recording, other: Recording, tolerance: float = 0.0) -> None:
    assert (one.queries, one.keys, one.about) == (other.queries, other.keys, other.about)
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        for field in dataclasses.fields(RecordedMap):
            if field.name not in ("weights", "gradient"):
                assert getattr(a, field.name) == getattr(b, field.name), field.name
        assert (a.gradient is None) == (b.gradient is None)
        torch.testing.assert_close(b.weights.dense(), a.weights.dense(), rtol=0, atol=tolerance)
        assert a.weights.dense().dtype == b.weights.dense().dtype


@settings(max_examples=20, deadline=None)
@given(
    shape=st.lists(st.integers(0, 5), min_size=2, max_size=5),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]),
    kind=st.sampled_from(get_args(Kind)),
    certificate=st.none() | st.floats(0, math.inf),
    grid=st.booleans(),
    name=st.text(),
)
def test_kept_maps_come_back_to_the_bit(
    tmp_path_factory: pytest.TempPathFactory,
    shape: list[int],
    dtype: torch.dtype,
    kind: str,
    certificate: float | None,
    grid: bool,
    name: str,
) -> None:
    *lead, q, k = shape
    places = (1, k) if grid and k else None
    heads = tuple(range(2, 2 + lead[-1])) if lead else None
    kept = DenseMap(weights(*shape).to(dtype))
    one = RecordedMap(name, kind, kept, 3, 5, certificate, 1e-3, "sdpa", places, None, tuple(range(4, 4 + q)), heads)
    tape = Recording((one, one), (name, "b"), None, {"model": name})
    same(tape, back(tape, tmp_path_factory.mktemp("saved") / "a.safetensors"))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("bias", BIASES)
def test_computed_maps_come_back_computed(mask: str, bias: str, tmp_path: Path) -> None:
    one = computed(2, 3, 11, 11, mask=MASKS[mask], bias=BIASES[bias], normalize=regard.Softmax(1.3))
    tape = Recording((RecordedMap("a", "self", one),))
    found = back(tape, tmp_path)
    assert type(found[0].weights) is LazyMap
    same(tape, found, 1e-6)
    rows = torch.tensor([7, 2])
    torch.testing.assert_close(found[0].weights.rows(rows), one.rows(rows), rtol=0, atol=1e-6)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_scores_that_are_dot_products(score: str, dtype: torch.dtype, tmp_path: Path) -> None:
    q, k = (torch.randn(2, 3, n, 7, dtype=dtype) for n in (5, 11))
    one = regard.attend(q, k, score=SCORES[score].to(dtype), need=regard.Need(map=True)).map
    tape = Recording((RecordedMap("a", "cross", one),))
    found = back(tape, tmp_path)
    assert type(found[0].weights) is LazyMap
    same(tape, found, 1e-6)


def test_grouped_heads_and_positions(tmp_path: Path) -> None:
    q, k = torch.randn(2, 6, 1, 7), torch.randn(2, 3, 11, 7)
    places = (torch.tensor([8]), torch.arange(11))
    one = regard.attend(q, k, k, mask=regard.Causal(), positions=places, need=regard.Need(map=True)).map
    tape = Recording((RecordedMap("a", "self", one, step=8),))
    found = back(tape, tmp_path)
    same(tape, found, 1e-6)
    assert not found[0].weights.dense()[..., 9:].any()
    with safe_open(tmp_path / "recording.safetensors", "pt") as file:
        assert file.get_tensor("0.map.keys").shape == (2, 3, 11, 7)


@for_each("mask", MASKS)
def test_what_is_selected_is_all_that_is_stored(mask: str, tmp_path: Path) -> None:
    tape = Recording((RecordedMap("a", "self", computed(2, 3, 11, 11, mask=MASKS[mask])),))
    for heads in (1, slice(0, 2), [2, 0]):
        few = tape.select(heads=heads, sample=1)
        few = dataclasses.replace(few, queries=None, keys=None)
        found = back(few, tmp_path)
        same(few, found, 1e-6)
    small = tape.select(heads=1, sample=1).save(tmp_path / "small.safetensors")
    assert small.stat().st_size < 0.6 * tape.save(tmp_path / "whole.safetensors").stat().st_size


def test_other_maps_are_stored_as_weights(tmp_path: Path) -> None:
    """Of other normalizers, of comparisons that are no dot product, of maps made of maps."""
    q, k = torch.randn(1, 2, 5, 7), torch.randn(1, 2, 5, 7)
    terms = [
        {"normalize": regard.Sparsemax()},
        {"score": regard.Additive(7, 7, 3)},
        {"bias": regard.Shaw(7)},
        {"normalize": regard.Softmax(regard.Learnable(2.0))},
    ]
    maps = [RecordedMap("a", "self", regard.attend(q, k, need=regard.Need(map=True), **one).map) for one in terms]
    tape = Recording((*maps, *stack().rollout(), *stack().without_keys([0]))).with_labels(
        ["ä", "\ud800", "\n", "", "🙂"]
    )
    found = back(tape, tmp_path)
    assert all(type(one.weights) is DenseMap for one in found)
    same(tape, found)


def test_a_gradient_is_stored(tmp_path: Path) -> None:
    gradient = DenseMap(torch.randn(1, 2, 5, 5))
    tape = Recording((RecordedMap("a", "self", DenseMap(weights(1, 2, 5, 5)), gradient=gradient),))
    found = back(tape, tmp_path)
    same(tape, found)
    assert torch.equal(found[0].gradient.dense(), gradient.dense())
    assert torch.equal(found.relevance()[0].weights.dense(), tape.relevance()[0].weights.dense())


def test_steps_of_a_generation_stay_small(tmp_path: Path) -> None:
    first = computed(1, 2, 5, 5, mask=regard.Causal())
    maps = [RecordedMap("a", "self", first, certificate=0.0)]
    maps += [
        RecordedMap("a", "self", computed(1, 2, 1, 6 + n, seed=n), 1 + n, 5 + n, certificate=0.0) for n in range(3)
    ]
    tape = Recording(tuple(maps)).stitch()
    found = back(tape, tmp_path)
    same(tape, found, 1e-6)
    assert found[0].shape == (1, 2, 8, 8)


def long(n: int, **terms: object) -> LazyMap:
    """A map of n tokens of which nothing was computed yet."""
    q, k = torch.randn(1, 1, n, 16), torch.randn(1, 1, n, 16)
    one = regard.attend(q[..., :1, :], k[..., :1, :], need=regard.Need(map=True)).map
    assert isinstance(one, LazyMap)
    return LazyMap(dataclasses.replace(one.call, q=q, queries=q, keys=k, v=k, **terms))


def test_a_long_text_stays_small_and_is_computed_on_demand(tmp_path: Path) -> None:
    n = 32_768
    one = long(n, mask=regard.Causal())
    q, k = one.call.queries, one.call.keys
    path = Recording((RecordedMap("a", "self", one),)).save(tmp_path)
    assert path.stat().st_size < 5e6  # as weights it would be 4.3 GB
    found = Recording.load(path)[0].weights
    assert found.shape == (1, 1, n, n)
    expected = (q[0, 0, 20_000] @ k[0, 0, :20_001].T / 4).softmax(-1)
    torch.testing.assert_close(found[20_000, :20_001][0, 0], expected, rtol=0, atol=1e-6)


def test_what_maps_share_is_stored_once(tmp_path: Path) -> None:
    """A mask that all layers have, and the keys of a cache that grows."""
    mask = regard.BooleanMask(torch.rand(1, 1, 11, 11) > 0.2)
    layers = [RecordedMap(f"l.{n}", "self", computed(1, 2, 11, 11, seed=n, mask=mask)) for n in range(3)]
    cache, steps = torch.randn(1, 2, 20, 7), []
    for n in range(5, 12):
        one = regard.attend(torch.randn(1, 2, 1, 7), cache[:, :, :n], need=regard.Need(map=True)).map
        steps.append(RecordedMap("g", "self", one, call=n - 5, step=n - 1))
    tape = Recording((*layers, *steps))
    path = tape.save(tmp_path)
    same(tape, Recording.load(path), 1e-6)
    with safe_open(path, "pt") as file:
        shapes = [tuple(file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118
    assert shapes.count((1, 1, 11, 11)) == 1
    assert sum(shape[-2] for shape in shapes if shape[-1] == 7 and shape[-2] > 1) == 3 * 2 * 11 + 11
    with pytest.raises(ValueError, match="would take"):
        tape.save(tmp_path / "b.safetensors", most=path.stat().st_size // 3)


def test_a_file_is_the_same_twice_and_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tape = stack()
    one, two = tape.save(tmp_path / "a.safetensors"), tape.save(tmp_path / "b.safetensors")
    assert one.read_bytes() == two.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_files.os, "fsync", full)
    with pytest.raises(OSError, match="cannot write .*a.safetensors: the disk is full"):
        stack(1).save(one)
    assert one.read_bytes() == two.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.safetensors", "b.safetensors"]


def test_every_field_is_stored(tmp_path: Path) -> None:
    """A field that comes later must be told here, too."""
    path = stack(1).save(tmp_path)
    with safe_open(path, "pt") as file:
        told = json.loads(file.metadata()["regard.recording"])
    fields = {field.name for field in dataclasses.fields(RecordedMap)}
    keys = {"weights": "map", "captured_from": "how", "gradient": "slope", "is_reversed": "reversed"}  # in the file
    assert set(told["maps"][0]) == {keys.get(name, name) for name in fields}


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    tape = Recording((kept("a", 1, 2, 3, 5, rows=(1,)),))
    with pytest.raises(ValueError, match=r"map 0: rows must be 3, .* got 1; fix it with dataclasses.replace before"):
        tape.save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_batch_that_only_the_values_had(tmp_path: Path) -> None:
    q, k, v = torch.randn(1, 1, 5, 7), torch.randn(1, 1, 11, 7), torch.randn(2, 3, 11, 7)
    for queries in (q, q.expand(2, 3, 5, 7)):
        one = regard.attend(queries, k, v, need=regard.Need(map=True)).map
        tape = Recording((RecordedMap("a", "cross", one),))
        found = back(tape, tmp_path)
        assert found[0].shape == (2, 3, 5, 11)
        same(tape, found, 1e-6)


def test_other_files_are_not_replaced(tmp_path: Path) -> None:
    tensors, text, saved = (tmp_path / f"{name}.safetensors" for name in ("best", "text", "saved"))
    save_file({"w": torch.ones(2)}, tensors)
    text.write_text("no tensors")
    for path in (tensors, text):
        before = path.read_bytes()
        with pytest.raises(ValueError, match=f"{path.name} is no recording, and a recording replaces no other file;"):
            Recording(()).save(path)
        assert path.read_bytes() == before
    for _ in range(2):
        assert Recording(()).save(saved) == saved


def test_files_that_are_no_recordings(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no recording .*nowhere.safetensors; save one, or name ano"):
        Recording.load(tmp_path / "nowhere.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"\x80\x04pickle")
    with pytest.raises(ValueError, match="bad.safetensors is damaged or no safetensors file"):
        Recording.load(tmp_path / "bad.safetensors")
    save_file({"a": torch.zeros(2)}, tmp_path / "weights.safetensors")
    with pytest.raises(
        ValueError, match="weights.safetensors is no recording of regard: its metadata has no .* entry; take"
    ):
        Recording.load(tmp_path / "weights.safetensors")
    with pytest.raises(
        ValueError, match=r"a recording is a .safetensors file or a folder, got .*a.png; write .*a.safe"
    ):
        stack().save(tmp_path / "a.png")


def test_too_large_is_refused_by_its_size(tmp_path: Path) -> None:
    said = "the recording would take 9e-07 GB, more than most=5e-07 GB, and 3 of its 3 maps are stored as weights"
    with pytest.raises(ValueError, match=said):
        stack(3, 1, 3, 5).save(tmp_path, most=500)
    assert not list(tmp_path.iterdir())
    huge = Recording((RecordedMap("a", "self", long(40_000, normalize=regard.Sparsemax())),))
    with pytest.raises(ValueError, match="would take 6.4 GB, more than most=2.15 GB"):
        huge.save(tmp_path)


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    path = stack().save(tmp_path)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(
        ImportError, match=r"recordings need safetensors; install it with: pip install 'regard\[train\]'"
    ):
        Recording.load(path)


def test_kept_maps_of_a_view_are_stored_alone(tmp_path: Path) -> None:
    big = weights(4, 3, 50, 50)
    path = Recording((RecordedMap("a", "self", DenseMap(big[1:2, :1])),)).save(tmp_path)
    assert path.stat().st_size < 12_000
    with safe_open(path, "pt") as file:
        assert file.get_slice("0.map.weights").get_shape() == [1, 1, 50, 50]
