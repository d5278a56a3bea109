"""A recording as one safetensors file: tensors, and all else as JSON in its metadata. Nothing is ever unpickled.

A map that is computed from projected queries and keys by a dot product and a softmax is stored as those, so that a long
text stays small: `queries`, `keys`, scale, temperature, positions, and the terms of mask and bias. Any other map is
stored as its weights.
"""

import json
import math
import reprlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.common import atomic_files, safetensors_files
from regard.recording.recorded_map import KINDS, RecordedMap
from regard.recording.storage import map_codec

FORMAT = 2
SUFFIX = ".safetensors"
# the file of a recording in a folder
NAME = f"recording{SUFFIX}"
_KEY = "regard.recording"

Labels = tuple[str, ...] | None


def file_of(path: Path) -> Path:
    """The file of a path: itself, or the recording in that folder."""
    if path.suffix == SUFFIX and not path.is_dir():
        return path
    if path.suffix and not path.is_dir():
        raise ValueError(
            f"a recording is a {SUFFIX} file or a folder, got {path}; "
            f"write {path.with_suffix(SUFFIX)}, or show(recording).save({path.name!r}) for a picture"
        )
    return path / NAME


def write(path: Path, maps: Sequence[RecordedMap], facts: Mapping[str, Any], most: int) -> Path:
    path = file_of(path)
    if path.is_file() and not safetensors_files.has_tag(path, _KEY):
        raise ValueError(f"{path} is no recording, and a recording replaces no other file; name another file")
    longest: dict[Hashable, Tensor] = {}
    parts = [part for m in maps for part in (m.weights, m.gradient) if part is not None]
    size = sum(map_codec.collect_tensors(part, longest) for part in parts) + sum(t.nbytes for t in longest.values())
    if size > most:
        dense = sum(not map_codec.is_linear(m.weights) for m in maps)
        raise ValueError(
            f"the recording would take {size / 1e9:.3g} GB, more than most={most / 1e9:.3g} GB, and {dense} of its "
            f"{len(maps)} maps are stored as weights; select fewer layers, heads or samples, or raise most"
        )
    file = _FileTensors(longest, {}, {})
    encoded = [_encode(number, recorded_map, file) for number, recorded_map in enumerate(maps)]
    fields = {"format": FORMAT, **facts, "maps": encoded}
    try:
        _check(fields)
        for n, recorded_map in enumerate(maps):
            _check_fit(n, recorded_map)
    except ValueError as error:
        raise ValueError(f"{error}; fix it with dataclasses.replace before it is saved") from error
    text = json.dumps(fields)
    if not path.parent.is_dir():
        atomic_files.make_folder(path.parent)
    atomic_files.write_atomically(path, safetensors_files.encode(file.tensors, {_KEY: text}))
    return path


def read(path: Path) -> tuple[tuple[RecordedMap, ...], Labels, Labels, dict[str, str]]:
    """The maps, the tokens of the queries and of the keys, and `about`."""
    if path.suffix != SUFFIX and path.is_file():
        raise ValueError(
            f"{path} is no recording: a recording is a {SUFFIX} file, or a folder with {NAME}; "
            f"record one with: regard record MODEL TEXT --out {path.with_suffix(SUFFIX)}"
        )
    path = file_of(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no recording {path}; save one, or name another file")
    tensors, facts = safetensors_files.read_tagged(path, _KEY, FORMAT, "recording")
    try:
        _check(facts)
        maps = tuple(_decode(encoded, partial(_FileTensors.get, tensors)) for encoded in facts["maps"])
        for n, recorded_map in enumerate(maps):
            _check_fit(n, recorded_map)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = error if isinstance(error, ValueError) else repr(error)
        raise ValueError(f"{path} is not a valid recording ({reason}); take another one") from error
    queries, keys = (None if facts[name] is None else tuple(facts[name]) for name in ("queries", "keys"))
    return maps, queries, keys, dict(facts["about"])


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_counts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_count, value))


def _are_tokens(value: object) -> bool:
    return value is None or (isinstance(value, list | tuple) and all(map(_is_text, value)))


def _is_amount(value: object) -> bool:
    """Whether this is a number of at least 0 as text: JSON has no infinity."""
    try:
        return isinstance(value, str) and not float(value) < 0
    except ValueError:
        return False


def _or_none(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


def _identity(value: Any) -> Any:
    return value


def _if_any(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


class _MapField(NamedTuple):
    """A field of a map in the file: the attribute that it holds, its check, the check in words, and its two forms."""

    attribute: str
    fits: Callable[[Any], bool]
    meaning: str
    encode: Callable[[Any], Any] = _identity
    decode: Callable[[Any], Any] = _identity


_FIELDS = {
    "name": _MapField("name", _is_text, "text"),
    "kind": _MapField("kind", lambda kind: kind in KINDS, f"one of {', '.join(KINDS)}"),
    "map": _MapField("weights", lambda form: isinstance(form, dict), "the form of a map"),
    "call": _MapField("call", _is_count, "a whole number from 0"),
    "step": _MapField("step", _is_count, "a whole number from 0"),
    # JSON has no infinity
    "certificate": _MapField(
        "certificate", _or_none(_is_amount), "a number from 0 as text, or nothing", _if_any(repr), _if_any(float)
    ),
    "tolerance": _MapField("tolerance", _is_amount, "a number from 0 as text", repr, float),
    "how": _MapField("captured_from", _is_text, "text"),
    "grid": _MapField(
        "grid",
        _or_none(lambda grid: _are_counts(grid) and len(grid) == 2 and min(grid) > 0),
        "two sizes from 1, or nothing",
        decode=_if_any(tuple),
    ),
    "rows": _MapField("rows", _or_none(_are_counts), "whole numbers from 0, or nothing", decode=_if_any(tuple)),
    "heads": _MapField("heads", _or_none(_are_counts), "whole numbers from 0, or nothing", decode=_if_any(tuple)),
    "slope": _MapField("gradient", _or_none(lambda form: isinstance(form, dict)), "the form of a map, or nothing"),
    "reversed": _MapField("is_reversed", lambda value: isinstance(value, bool), "a truth"),
}


def _field(owner: str, fields: Mapping[str, Any], name: str, fits: Callable[[Any], bool], meaning: str) -> Any:
    """The field `name`; raises if it is missing or of another type."""
    if name not in fields:
        raise ValueError(f"{owner}{name} must be {meaning}, and is missing")
    if not fits(fields[name]):
        # shortened, and without control characters: the file may come from anybody
        raise ValueError(f"{owner}{name} must be {meaning}, got {reprlib.repr(fields[name])}")
    return fields[name]


def _check(facts: Mapping[str, Any]) -> None:
    """Raises unless every field of the JSON is there and of its type."""
    for name in ("queries", "keys"):
        _field("", facts, name, _are_tokens, "tokens of text, or nothing")
    about = _field("", facts, "about", lambda value: isinstance(value, dict), "texts by name")
    for name in about:
        _field("about: ", about, name, _is_text, "text")
    maps = _field("", facts, "maps", lambda value: isinstance(value, list), "a list")
    for n, encoded in enumerate(maps):
        if not isinstance(encoded, dict):
            raise ValueError(f"map {n} must be fields by name, got {reprlib.repr(encoded)}")
        for name, field in _FIELDS.items():
            _field(f"map {n}: ", encoded, name, field.fits, field.meaning)


def _check_fit(n: int, recorded_map: RecordedMap) -> None:
    """Raises unless rows, heads, grid and gradient fit the shape of the map."""
    *lead, q, k = shape = recorded_map.shape
    if recorded_map.rows is not None and len(recorded_map.rows) != q:
        raise ValueError(f"map {n}: rows must be {q}, one per query of {shape}, got {len(recorded_map.rows)}")
    if recorded_map.heads is not None and (not lead or len(recorded_map.heads) != lead[-1]):
        raise ValueError(f"map {n}: heads must be as many as {shape} has, got {len(recorded_map.heads)}")
    if recorded_map.grid is not None and math.prod(recorded_map.grid) > k:
        raise ValueError(f"map {n}: grid must have at most the {k} patches of {shape}, got {recorded_map.grid}")
    if recorded_map.gradient is not None and recorded_map.gradient.shape != shape:
        raise ValueError(f"map {n}: slope must be {shape} as its map, got {recorded_map.gradient.shape}")


@dataclass(frozen=True, eq=False)
class _FileTensors:
    """Tensors as they go into a file, each once."""

    longest: dict[Hashable, Tensor]
    names: dict[Hashable, str]
    tensors: dict[str, Tensor]

    def put(self, name: str, t: Tensor) -> map_codec.Name:
        """The name of the tensor in the file; of the beginning of a longer one, the name of that and the length."""
        key = map_codec.storage_key(t)
        longest = self.longest.get(key, t)
        if key not in self.longest or key not in self.names:
            self.tensors[name] = longest.detach().to("cpu").contiguous()
        if key in self.longest:
            name = self.names.setdefault(key, name)
        return name if t.shape == longest.shape else (name, t.shape[-2])

    @staticmethod
    def get(tensors: Mapping[str, Tensor], name: Any) -> Tensor:
        key, length = (name, None) if isinstance(name, str) else name
        if not isinstance(key, str) or key not in tensors:
            raise ValueError(f"there is no tensor {reprlib.repr(key)} in it")
        t = tensors[key]
        return t if length is None else t.narrow(-2, 0, length)


def _encode(number: int, recorded_map: RecordedMap, file: _FileTensors) -> dict[str, Any]:
    def encode(name: str, field: _MapField) -> Any:
        value = getattr(recorded_map, field.attribute)
        if isinstance(value, AttentionMap):
            return map_codec.encode(value, lambda tensor, t: file.put(f"{number}.{name}.{tensor}", t))
        return field.encode(value)

    return {name: encode(name, field) for name, field in _FIELDS.items()}


def _decode(encoded: Mapping[str, Any], get: map_codec.Get) -> RecordedMap:
    values = {field.attribute: field.decode(encoded[name]) for name, field in _FIELDS.items()}
    weights, gradient = (_if_any(lambda form: map_codec.decode(form, get))(values[name]) for name in _MAPS)
    return RecordedMap(**{**values, "weights": weights, "gradient": gradient})


# the attributes that are maps
_MAPS = ("weights", "gradient")
