"""Recording: the attention maps of a forward pass, in the order of the calls, and the words they are about."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, overload

from torch import Tensor

from regard.attn import checks
from regard.attn.maps.attention_map import AttentionMap
from regard.recording.analysis import rollout, select, sinks
from regard.recording.analysis.derived_maps import HeadMean, Mean, RowNormalized, changed, made
from regard.recording.analysis.words import Merged, Words
from regard.recording.recorded_map import RecordedMap
from regard.recording.storage import recording_file


@dataclass(frozen=True)
class Recording(Sequence[RecordedMap]):
    """Maps in call order: `tape[3]`, `tape["encoder.layers.0"]` (all calls of that module), `for m in tape`.

    `queries` are the pieces of the text, and `keys` those of another one that is looked at, of sample 0; without any,
    positions stand for them. `about` says where the recording comes from (model, versions), and under "queries" and
    "keys", if they are no pieces of a text, what they are: text only.

    What is worked out from maps is a recording again, computed when it is looked at, and as sure as the least sure map
    that is in it.
    """

    maps: tuple[RecordedMap, ...] = ()
    queries: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    about: dict[str, str] = field(default_factory=dict)

    @overload
    def __getitem__(self, index: int) -> RecordedMap: ...
    @overload
    def __getitem__(self, index: str | slice) -> "Recording": ...
    def __getitem__(self, index: int | str | slice) -> "RecordedMap | Recording":
        if isinstance(index, int):
            return self.maps[index]
        if isinstance(index, slice):
            return replace(self, maps=self.maps[index])
        found = tuple(one for one in self.maps if one.name == index)
        if not found:
            checks.known("name", index, dict.fromkeys(self.names))
        return replace(self, maps=found)

    def __len__(self) -> int:
        return len(self.maps)

    def __iter__(self) -> Iterator[RecordedMap]:
        return iter(self.maps)

    @property
    def names(self) -> tuple[str, ...]:
        """The modules that attended, in the order of their first call."""
        return tuple(dict.fromkeys(one.name for one in self.maps))

    def with_labels(self, queries: Sequence[str], keys: Sequence[str] | None = None) -> "Recording":
        """With the pieces of the text: one on both sides of self attention. The keys of any other kind are another
        text, the source of an alignment or the slots of a memory, and have no pieces unless they are given."""
        for name, pieces in (("queries", queries), ("keys", keys)):
            if isinstance(pieces, str):
                raise TypeError(f"{name} must be pieces, got the text {pieces!r}; split it, as in {name}.split()")
        return replace(self, queries=tuple(queries), keys=None if keys is None else tuple(keys))

    def labels(self, one: RecordedMap) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        """The pieces at the rows and at the columns of one of the maps; None where none stand for them.

        Self attention has one text on both sides: the queries', unless the keys' alone is as long as it has keys; if
        both are, the keys' in a module with "encoder" in its name, which reads the source. A step of a generation has
        its beginning at the columns, or what the cache of a sliding window still holds of it. Of any other kind the
        columns are the keys, if there are as many; channels and places, of a gate, are no pieces of a text.
        """
        queries, keys = self.queries, self.keys
        q, k = one.shape[-2:]
        if one.kind == "gate":
            return None, None
        if one.kind == "self" and queries is not None:
            source = keys is not None and len(keys) == k and (len(queries) != k or select.encodes(one.name))
            queries = keys = keys if source else queries
        places = [one.step + i for i in (range(q) if one.rows is None else one.rows)]
        known = queries is not None and len(queries) > max(places, default=-1)
        rows = tuple(queries[i] for i in places) if known and queries is not None else None
        if keys is None or len(keys) < k or (one.kind != "self" and len(keys) != k):
            return rows, None
        if one.first:  # the cache of a sliding window holds the last of them
            return rows, keys[one.first : one.first + k] if len(keys) >= one.first + k else None
        # one text that is longer than the map: its beginning, if the map ends where its last row stands
        return rows, keys[:k] if len(keys) == k or max(places, default=-1) < k else None

    # some of it

    def select(
        self,
        layers: str | Sequence[str] | None = None,
        *,
        heads: select.Index | None = None,
        kind: str | Sequence[str] | None = None,
        sample: int | None = None,
        calls: select.Index | None = None,
    ) -> "Recording":
        """The maps of modules whose names fit a pattern (`"encoder.*"`, or several), of a kind, of some calls; of
        these, some heads and one sample. All axes stay, so that one head is an axis of one. Heads that were chosen
        when they were recorded keep their numbers.

        The pieces of the text are those of sample 0: another sample goes without.
        """
        maps = select.maps(self.maps, layers, kind, calls)
        if heads is not None:
            maps = tuple(select.heads(one, heads) for one in maps)
        if sample is None:
            return replace(self, maps=maps)
        maps = tuple(select.sample(one, sample) for one in maps)
        return replace(self, maps=maps) if sample == 0 else replace(self, maps=maps, queries=None, keys=None)

    def without_keys(self, keys: Sequence[int]) -> "Recording":
        """P_ij / Σ_{j ∉ S} P_ij: some keys hidden, `without(sinks())`, and the rest of each row brought to one again.

        A row that looked at those alone is left with nothing.
        """
        return self._each("rest", lambda one: sinks.KeysRemoved(one.weights, sinks.hidden(keys, one)))

    # several in one

    def mean(self, over: Literal["heads", "layers", "maps"]) -> "Recording":
        """1/H Σ_h P_h of every map (over="heads"); 1/L Σ_l P_l of all maps, head by head ("layers"); of all heads of
        all maps together ("maps"). An axis of one head stays."""
        checks.known("over", over, ("heads", "layers", "maps"))
        if over != "layers":
            for one in self.maps:
                if len(one.shape) < 4:
                    raise ValueError(
                        f"{one.name!r} has no heads: its map is {one.shape}, (sample, query, key); mean(over='layers')"
                    )
        if over == "heads":
            return self._each("mean", lambda one: HeadMean(one.weights))
        of = [HeadMean(one.weights) if over == "maps" else one.weights for one in self._some("mean")]
        shapes = dict.fromkeys(one.shape for one in of)
        if len(shapes) > 1 or len({(one.rows, one.heads if over == "layers" else None) for one in self.maps}) > 1:
            raise ValueError(
                f"a mean over {over} is of maps of one shape, rows and heads, got {' and '.join(map(str, shapes))}; "
                "take those of one kind and call, as in select(kind='self', calls=0)"
            )
        kinds = {one.kind for one in self.maps}
        if len(kinds) > 1:
            raise ValueError(f"a mean over {over} is of one kind of attention, got {sorted(kinds)}; select(kind=...)")
        first = self.maps[0]
        mean = made("mean", first.kind, Mean(*of), self.maps, "mean")
        return self._one(replace(mean, rows=first.rows, heads=first.heads if over == "layers" else None))

    def rollout(self, residual: float = 0.5) -> "Recording":
        """A_L' ⋯ A_1', A' = (1 − r) · mean_h P + r · I, rows renormalised  (Abnar and Zuidema 2020, section 3).

        What a position of the last layer has of each input, if attention and the residual way around it were all that
        carries. One map of one head; of a model with more than one stack, select one first.
        """
        return self._one(rollout.rollout(self.maps, residual))

    def relevance(self) -> "Recording":
        """R ← R + Ā R from R = I, Ā = mean_h (∂L/∂P ∘ P)⁺  (Chefer, Gur and Wolf 2021, eq. 5 and 6).

        Needs `record(model, gradients=True)` and a backward pass from what is to be explained, such as the logit of
        one class. Rows are no distribution: `shares()` makes them one.
        """
        return self._one(rollout.relevance(self.maps))

    def stitched(self) -> "Recording":
        """The steps of a generation as one map a module: rows by absolute position, nothing for keys not yet there."""
        return replace(self, maps=select.stitched(self.maps))

    def difference(self, other: "Recording") -> "Recording":
        """P − Q of the maps with the same name and call: between −1 and 1."""
        checks.term("other", other, Recording, "Recording(...)")
        return replace(self, maps=select.differences(self.maps, other.maps))

    # told in other words

    def shares(self) -> "Recording":
        """P_ij / Σ_j P_ij: every row brought to one; a row of nothing stays nothing."""
        return self._each("shares", lambda one: RowNormalized(one.weights))

    def merge_words(self, queries: Words | None = None, keys: Words | None = None) -> "Recording":
        """mean_{i ∈ u} Σ_{j ∈ v} P_ij: words for pieces, rows averaged, columns summed  (Clark et al. 2019, 4.1).

        Left out, the words are found by the marks in the labels. Self attention has one text on both sides; any other
        kind needs keys, or their pieces.
        """
        queries, keys = select.words(self.queries, self.keys, queries, keys)

        def merged_map(one: RecordedMap) -> Merged:
            return Merged(one.weights, *select.fitting(one, queries, keys))

        maps = tuple(replace(changed(one, merged_map(one), "words"), grid=None) for one in self.maps)
        return replace(self, maps=maps, queries=queries.text, keys=None if keys is None else keys.text)

    def entropy(self) -> tuple[Tensor, ...]:
        """−Σ_j P_ij log P_ij of every row of every map, in nats: "*b q" each."""
        return tuple(one.weights.entropy() for one in self.maps)

    def sinks(self, threshold: float = 0.3, *, most: float = 0.5, sample: int = 0) -> tuple[int, ...]:
        """The keys j whose share α_j = Σ_i P_ij / Σ_ij P_ij is above the threshold in `most` of all heads.

        After Gu et al. 2025, who take 0.3 and count heads the same way; the name is from Xiao et al. 2024. The share
        is of all queries, padding too if there is some.
        """
        return sinks.sinks(self.maps, threshold, most, sample)

    # on disk

    def save(self, path: str | os.PathLike[str], *, most: int = 2 << 30) -> Path:
        """Writes one .safetensors file, or one into a folder; what was there before stays until it is whole.

        Maps computed by a dot product and a softmax are stored as queries and keys; others as weights. A file of more
        than `most` bytes is refused.
        """
        told = {"queries": self.queries, "keys": self.keys, "about": self.about}
        return recording_file.write(Path(path), self.maps, told, most)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Recording":
        """What `save` wrote. Nothing is unpickled."""
        return Recording(*recording_file.read(Path(path)))

    def _each(self, how: str, worked: Callable[[RecordedMap], AttentionMap]) -> "Recording":
        return replace(self, maps=tuple(changed(one, worked(one), how) for one in self.maps))

    def _one(self, one: RecordedMap) -> "Recording":
        return replace(self, maps=(one,))

    def _some(self, what: str) -> tuple[RecordedMap, ...]:
        if not self.maps:
            raise ValueError(f"{what} needs at least one map, got an empty recording; record a model that attends")
        return self.maps
