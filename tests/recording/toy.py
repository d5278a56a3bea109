"""Small recordings: kept maps, and the same computed from queries and keys."""

import torch
from torch import Tensor

import regard
from regard.attn.maps.attention_map import AttentionMap, DenseMap
from regard.recording.recorded_map import Kind, RecordedMap
from regard.recording.recording import Recording


def weights(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).softmax(-1)


def computed(b: int = 2, h: int = 3, q: int = 5, k: int = 5, seed: int = 0, **terms: object) -> AttentionMap:
    generator = torch.Generator().manual_seed(seed)
    queries, keys = (torch.randn(b, h, n, 7, generator=generator) for n in (q, k))
    found = regard.attend(queries, keys, need=regard.Need(map=True), **terms).map
    assert isinstance(found, AttentionMap)
    return found


def kept(name: str, *shape: int, seed: int = 0, kind: Kind = "self", **more: object) -> RecordedMap:
    return RecordedMap(name, kind, DenseMap(weights(*shape, seed=seed)), certificate=1e-7, **more)


def stack(layers: int = 3, b: int = 2, h: int = 3, n: int = 5) -> Recording:
    """So many layers of self attention over n tokens."""
    maps = (kept(f"layers.{layer}", b, h, n, n, seed=layer) for layer in range(layers))
    return Recording(tuple(maps)).with_labels([f"w{i}" for i in range(n)])
