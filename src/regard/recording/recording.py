"""Recording: the attention maps of a forward pass, in the order of the calls, and the tokens of its text."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, overload

from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.common import checks
from regard.recording.analysis import rollout, select, sinks
from regard.recording.analysis.derived_maps import HeadMean, Mean, RowNormalized, derive, replace_weights
from regard.recording.analysis.diversity import HeadDiversity, diversity
from regard.recording.analysis.words import WordMap, Words
from regard.recording.recorded_map import RecordedMap
from regard.recording.storage import recording_file


@dataclass(frozen=True)
class Recording(Sequence[RecordedMap]):
    """Maps in call order: `recording[3]`, `recording["encoder.layers.0"]` (all calls of that module), iteration.

    `queries` are the tokens of the text of sample 0, and `keys` those of another text that it attends to; without them,
    pictures show positions. `about` is text: the origin of the recording (model, versions), and under "queries" and
    "keys" their description, if they are not tokens.

    Methods that compute maps return a Recording whose rows are computed when they are read, with the worst certificate
    of its maps.
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
        maps = tuple(m for m in self.maps if m.name == index)
        if not maps:
            checks.known("name", index, dict.fromkeys(self.names))
        return replace(self, maps=maps)

    def __len__(self) -> int:
        return len(self.maps)

    def __iter__(self) -> Iterator[RecordedMap]:
        return iter(self.maps)

    @property
    def names(self) -> tuple[str, ...]:
        """The modules that attended, in the order of their first call."""
        return tuple(dict.fromkeys(m.name for m in self.maps))

    def with_labels(self, queries: Sequence[str], keys: Sequence[str] | None = None) -> "Recording":
        """With the tokens of the text, which are on both sides of self attention.

        Keys of any other kind are another text, the source of an alignment or the slots of a memory, and have no tokens
        unless `keys` are given. Tokens that fit no map are left out, with a warning: their number is one per position,
        special tokens included, or that of the whole text of a generation.
        """
        for name, tokens in (("queries", queries), ("keys", keys)):
            if isinstance(tokens, str):
                raise TypeError(f"{name} must be tokens, got the text {tokens!r}; split it, as in {name}.split()")
        fitting: dict[str, tuple[str, ...] | None] = {}
        for name, tokens in (("queries", queries), ("keys", keys)):
            fits = tokens is None or select.fits_labels(self.maps, len(tokens))
            fitting[name] = None if tokens is None or not fits else tuple(tokens)
            if tokens is not None and not fits:
                lengths = ", ".join(map(str, sorted({n for m in self.maps for n in m.shape[-2:]})[-6:]))
                warnings.warn(
                    f"{name} are {len(tokens)} tokens, and no map has as many positions, but {lengths}; "
                    "give one token per position, special tokens included; the maps keep numbers",
                    UserWarning,
                    stacklevel=2,
                )
        return replace(self, queries=fitting["queries"], keys=fitting["keys"])

    def labels(self, recorded_map: RecordedMap) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        """The tokens at the rows and at the columns of one of the maps; None where they are unknown.

        Self attention has one text on both sides: that of the queries, unless only that of the keys has the length of
        the map; if both have, that of the keys in a module with "encoder" in its name. The columns of a step of a
        generation are the beginning of the text, or the part that a sliding window still holds. In any other kind the
        columns are the keys, if there are as many. A reversed map has the keys at its rows and the queries at its
        columns, if there are as many. A gate has channels and positions, and no tokens; that of a cell has units, and
        steps with the tokens of self attention.
        """
        queries, keys = self.queries, self.keys
        q, k = recorded_map.shape[-2:]
        if recorded_map.kind == "gate":
            return None, None
        if recorded_map.kind == "cell":
            texts = [tokens for tokens in (queries, keys) if tokens is not None and len(tokens) == k]
            return None, texts[-1 if select.is_encoder(recorded_map.name) else 0] if texts else None
        if recorded_map.is_reversed:
            fitting = ((keys, q), (queries, k))
            rows, columns = (None if tokens is None or len(tokens) != count else tokens for tokens, count in fitting)
            return rows, columns
        if recorded_map.kind == "self" and queries is not None:
            source = keys is not None and len(keys) == k and (len(queries) != k or select.is_encoder(recorded_map.name))
            queries = keys = keys if source else queries
        positions = [recorded_map.step + i for i in (range(q) if recorded_map.rows is None else recorded_map.rows)]
        is_known = queries is not None and len(queries) > max(positions, default=-1)
        rows = tuple(queries[i] for i in positions) if is_known and queries is not None else None
        if keys is None or len(keys) < k or (recorded_map.kind != "self" and len(keys) != k):
            return rows, None
        first = recorded_map.first
        if first:  # a sliding window holds the last of them
            return rows, keys[first : first + k] if len(keys) >= first + k else None
        # the beginning of a longer text, if the map ends at the position of its last row
        return rows, keys[:k] if len(keys) == k or max(positions, default=-1) < k else None

    # selections

    def select(
        self,
        layers: str | Sequence[str] | None = None,
        *,
        heads: select.Index | None = None,
        kind: str | Sequence[str] | None = None,
        sample: int | None = None,
        calls: select.Index | None = None,
    ) -> "Recording":
        """The maps of modules whose names match a pattern (`"encoder.*"`, or several), of a kind, of some calls; of
        these, some heads and one sample. All axes stay: a single head or sample is an axis of one. If only some heads
        were recorded, `heads` are their numbers in the module.

        The tokens are those of sample 0: a selection of another sample has none.
        """
        maps = select.select_maps(self.maps, layers, kind, calls)
        if heads is not None:
            maps = tuple(select.select_heads(m, heads) for m in maps)
        if sample is None:
            return replace(self, maps=maps)
        maps = tuple(select.select_sample(m, sample) for m in maps)
        return replace(self, maps=maps) if sample == 0 else replace(self, maps=maps, queries=None, keys=None)

    def without_keys(self, keys: Sequence[int]) -> "Recording":
        """P_ij / Σ_{j ∉ S} P_ij: without the keys S, as in `without_keys(sinks())`; the rest of each row sums to one.

        A row whose weight is on those keys alone becomes 0.
        """
        return self._map("rest", lambda m: sinks.KeysRemoved(m.weights, sinks.checked_keys(keys, m)))

    # combinations

    def mean(self, over: Literal["heads", "layers", "maps"]) -> "Recording":
        """1/H Σ_h P_h of every map (over="heads"); 1/L Σ_l P_l of all maps, head by head ("layers"); of all heads of
        all maps together ("maps"). An axis of one head stays."""
        checks.known("over", over, ("heads", "layers", "maps"))
        if over != "layers":
            for recorded_map in self.maps:
                select.check_heads(recorded_map, "mean(over='layers')")
        if over == "heads":
            return self._map("mean", lambda m: HeadMean(m.weights))
        if not self.maps:
            raise ValueError("mean needs at least one map, got an empty recording; record a model that attends")
        weights = [HeadMean(m.weights) if over == "maps" else m.weights for m in self.maps]
        shapes = dict.fromkeys(m.shape for m in weights)
        if len(shapes) > 1 or len({(m.rows, m.heads if over == "layers" else None) for m in self.maps}) > 1:
            raise ValueError(
                f"a mean over {over} is of maps of one shape, rows and heads, got {' and '.join(map(str, shapes))}; "
                "take those of one kind and call, as in select(kind='self', calls=0)"
            )
        kinds = {m.kind for m in self.maps}
        if len(kinds) > 1:
            raise ValueError(f"a mean over {over} is of one kind of attention, got {sorted(kinds)}; select(kind=...)")
        first = self.maps[0]
        mean = derive("mean", first.kind, Mean(*weights), self.maps, "mean")
        return self._with_map(replace(mean, rows=first.rows, heads=first.heads if over == "layers" else None))

    def rollout(self, residual: float = 0.5) -> "Recording":
        """A_L' ⋯ A_1', A' = (1 − r) · mean_h P + r · I, rows renormalised  (Abnar and Zuidema 2020, section 3).

        The share of each input in a position of the last layer, if attention and residual connections were the only
        paths. One map of one head; of a model with more than one stack, select one first.
        """
        return self._with_map(rollout.rollout(self.maps, residual))

    def relevance(self) -> "Recording":
        """R ← R + Ā R from R = I, Ā = mean_h (∂L/∂P ∘ P)⁺  (Chefer, Gur and Wolf 2021, eq. 5 and 6).

        Needs `record(model, gradients=True)` and a backward pass from the value to explain, such as the logit of one
        class. Rows do not sum to one: `shares()` normalises them.
        """
        return self._with_map(rollout.relevance(self.maps))

    def stitch(self) -> "Recording":
        """The steps of a generation as one map per module: rows by absolute position, 0 for keys of later steps."""
        return replace(self, maps=select.stitch(self.maps))

    def difference(self, other: "Recording") -> "Recording":
        """P − Q of the maps with the same name and call: between −1 and 1."""
        checks.instance_of("other", other, Recording, "Recording(...)")
        return replace(self, maps=select.subtract(self.maps, other.maps))

    # transformations

    def shares(self) -> "Recording":
        """P_ij / Σ_j P_ij: every row sums to one; a row of zeros stays zero."""
        return self._map("shares", lambda m: RowNormalized(m.weights))

    def merge_words(self, queries: Words | None = None, keys: Words | None = None) -> "Recording":
        """mean_{i ∈ u} Σ_{j ∈ v} P_ij: tokens joined to words, rows averaged, columns summed  (Clark et al. 2019, 4.1).

        Without arguments, the marks of the tokenizer in the labels show the words. Self attention has one text on both
        sides; any other kind needs `keys`, or labels of the keys.
        """
        queries, keys = select.resolve_words(self.queries, self.keys, queries, keys)

        def word_map(recorded_map: RecordedMap) -> WordMap:
            return WordMap(recorded_map.weights, *select.words_of_map(recorded_map, queries, keys))

        maps = tuple(
            # the gates of a cell are no shares: there is nothing to sum
            m if m.kind == "cell" else replace(replace_weights(m, word_map(m), "words"), grid=None)
            for m in self.maps
        )
        return replace(self, maps=maps, queries=queries.text, keys=None if keys is None else keys.text)

    def entropy(self) -> tuple[Tensor, ...]:
        """−Σ_j P_ij log P_ij of every row of every map, in nats: "*b q" each."""
        return tuple(m.weights.entropy() for m in self.maps)

    def diversity(self) -> tuple[HeadDiversity, ...]:
        """Disagreement of the heads of every map, their effective number, and the effective rank of each head.

        Disagreement is the mean total variation distance of two heads' rows; the effective rank is that of Roy and
        Vetterli 2007. Rows are normalised to a sum of one. Forms the matrix of each map, one after the other.
        """
        return tuple(diversity(m) for m in self.maps)

    def sinks(self, threshold: float = sinks.THRESHOLD, *, most: float = 0.5, sample: int = 0) -> tuple[int, ...]:
        """The keys j whose share α_j = Σ_i P_ij / Σ_ij P_ij is above the threshold in `most` of all heads.

        After Gu et al. 2025, who take 0.3 and count heads the same way; the name is from Xiao et al. 2024. The share
        is of all queries, padding included.
        """
        return sinks.sinks(self.maps, threshold, most, sample)

    # on disk

    def save(self, path: str | os.PathLike[str], *, most: int = 2 << 30) -> Path:
        """Writes one .safetensors file, or one into a folder; an older file is replaced once the new one is complete.

        Maps computed by a dot product and a softmax are stored as queries and keys; others as weights. A file of more
        than `most` bytes is refused.
        """
        facts = {"queries": self.queries, "keys": self.keys, "about": self.about}
        return recording_file.write(Path(path), self.maps, facts, most)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Recording":
        """Reads a file that `save` wrote. Nothing is unpickled."""
        return Recording(*recording_file.read(Path(path)))

    def _map(self, operation: str, function: Callable[[RecordedMap], AttentionMap]) -> "Recording":
        return replace(self, maps=tuple(replace_weights(m, function(m), operation) for m in self.maps))

    def _with_map(self, recorded_map: RecordedMap) -> "Recording":
        return replace(self, maps=(recorded_map,))
