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
from typing import Any, get_args

from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.common import atomic_files, safetensors_files
from regard.recording.recorded_map import Kind, RecordedMap
from regard.recording.storage import map_codec

FORMAT = 1
SUFFIX = ".safetensors"
# in a folder the recording is this file
NAME = f"recording{SUFFIX}"
_KEY = "regard.recording"

Labels = tuple[str, ...] | None


def place(path: Path) -> Path:
    """The file that `path` means: itself, or the recording in that folder."""
    if path.suffix == SUFFIX and not path.is_dir():
        return path
    if path.suffix and not path.is_dir():
        raise ValueError(
            f"a recording is a {SUFFIX} file or a folder, got {path}; "
            f"write {path.with_suffix(SUFFIX)}, or show(recording).save({path.name!r}) for a picture"
        )
    return path / NAME


def write(path: Path, maps: Sequence[RecordedMap], facts: Mapping[str, Any], most: int) -> Path:
    path = place(path)
    longest: dict[Hashable, Tensor] = {}
    each = [part for one in maps for part in (one.weights, one.gradient) if part is not None]
    size = sum(map_codec.parts(part, longest) for part in each) + sum(t.nbytes for t in longest.values())
    if size > most:
        full = sum(not map_codec.small(one.weights) for one in maps)
        raise ValueError(
            f"the recording would take {size / 1e9:.3g} GB, more than most={most / 1e9:.3g} GB, and {full} of its "
            f"{len(maps)} maps are stored as weights; select fewer layers, heads or samples, or raise most"
        )
    shelf = _Shelf(longest, {}, {})
    told = [_told(number, one, shelf) for number, one in enumerate(maps)]
    whole = {"format": FORMAT, **facts, "maps": told}
    try:
        _check(whole)
        for n, one in enumerate(maps):
            _check_fit(n, one)
    except ValueError as error:
        raise ValueError(f"{error}; mend it with dataclasses.replace before it is saved") from error
    text = json.dumps(whole)
    if not path.parent.is_dir():
        atomic_files.make_folder(path.parent)
    atomic_files.write_atomically(path, safetensors_files.encode(shelf.tensors, {_KEY: text}))
    return path


def read(path: Path) -> tuple[tuple[RecordedMap, ...], Labels, Labels, dict[str, str]]:
    """The maps, the pieces of the queries and of the keys, and where it all comes from."""
    path = place(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no recording {path}; save one, or name another file")
    tensors, facts = safetensors_files.read_tagged(path, _KEY, FORMAT, "recording")
    try:
        _check(facts)
        maps = tuple(_recorded(one, partial(_Shelf.get, tensors)) for one in facts["maps"])
        for n, one in enumerate(maps):
            _check_fit(n, one)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        said = error if isinstance(error, ValueError) else repr(error)
        raise ValueError(f"{path} does not hold what it should ({said}); take another one") from error
    queries, keys = (None if facts[name] is None else tuple(facts[name]) for name in ("queries", "keys"))
    return maps, queries, keys, dict(facts["about"])


def _text(value: object) -> bool:
    return isinstance(value, str)


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _counts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_count, value))


def _pieces(value: object) -> bool:
    return value is None or (isinstance(value, list | tuple) and all(map(_text, value)))


def _amount(value: object) -> bool:
    """A number of at least 0, in its own words: JSON has no infinity."""
    try:
        return isinstance(value, str) and not float(value) < 0
    except ValueError:
        return False


def _or_none(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


# what every field of a map must be, and in words
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (_text, "text"),
    "kind": (lambda kind: kind in get_args(Kind), f"one of {', '.join(get_args(Kind))}"),
    "map": (lambda form: isinstance(form, dict), "the form of a map"),
    "call": (_count, "a whole number from 0"),
    "step": (_count, "a whole number from 0"),
    "certificate": (_or_none(_amount), "a number from 0 as text, or nothing"),
    "tolerance": (_amount, "a number from 0 as text"),
    "how": (_text, "text"),
    "grid": (_or_none(lambda grid: _counts(grid) and len(grid) == 2 and min(grid) > 0), "two sizes from 1, or nothing"),
    "rows": (_or_none(_counts), "whole numbers from 0, or nothing"),
    "heads": (_or_none(_counts), "whole numbers from 0, or nothing"),
    "slope": (lambda form: form is None or isinstance(form, dict), "the form of a map, or nothing"),
}


def _field(whose: str, of: Mapping[str, Any], name: str, fits: Callable[[Any], bool], meant: str) -> Any:
    """The field, if it is there and what it should be."""
    if name not in of:
        raise ValueError(f"{whose}{name} must be {meant}, and is not there")
    if not fits(of[name]):
        # shortened, and without control characters: the file may be anybody's
        raise ValueError(f"{whose}{name} must be {meant}, got {reprlib.repr(of[name])}")
    return of[name]


def _check(facts: Mapping[str, Any]) -> None:
    """Is every field of the JSON there, and of its type?"""
    for name in ("queries", "keys"):
        _field("", facts, name, _pieces, "pieces of text, or nothing")
    about = _field("", facts, "about", lambda value: isinstance(value, dict), "texts by name")
    for name in about:
        _field("about: ", about, name, _text, "text")
    maps = _field("", facts, "maps", lambda value: isinstance(value, list), "a list")
    for n, told in enumerate(maps):
        if not isinstance(told, dict):
            raise ValueError(f"map {n} must be fields by name, got {reprlib.repr(told)}")
        for name, (fits, meant) in _FIELDS.items():
            _field(f"map {n}: ", told, name, fits, meant)


def _check_fit(n: int, one: RecordedMap) -> None:
    """Does what is told of a map fit its shape?"""
    *lead, q, k = shape = one.shape
    if one.rows is not None and len(one.rows) != q:
        raise ValueError(f"map {n}: rows must be {q}, one a query of {shape}, got {len(one.rows)}")
    if one.heads is not None and (not lead or len(one.heads) != lead[-1]):
        raise ValueError(f"map {n}: heads must be as many as {shape} has, got {len(one.heads)}")
    if one.grid is not None and math.prod(one.grid) > k:
        raise ValueError(f"map {n}: grid must have at most the {k} places of {shape}, got {one.grid}")
    if one.gradient is not None and one.gradient.shape != shape:
        raise ValueError(f"map {n}: slope must be {shape} as its map, got {one.gradient.shape}")


@dataclass(frozen=True, eq=False)
class _Shelf:
    """Tensors as they go into a file, each once."""

    longest: dict[Hashable, Tensor]
    names: dict[Hashable, str]
    tensors: dict[str, Tensor]

    def put(self, name: str, t: Tensor) -> map_codec.Name:
        """What the tensor is called there: its own name, or that of one which it begins, and how far."""
        kind = map_codec.which(t)
        whole = self.longest.get(kind, t)
        if kind not in self.longest or kind not in self.names:
            self.tensors[name] = whole.detach().to("cpu").contiguous()
        if kind in self.longest:
            name = self.names.setdefault(kind, name)
        return name if t.shape == whole.shape else (name, t.shape[-2])

    @staticmethod
    def get(tensors: Mapping[str, Tensor], name: Any) -> Tensor:
        where, length = (name, None) if isinstance(name, str) else name
        if not isinstance(where, str) or where not in tensors:
            raise ValueError(f"there is no tensor {reprlib.repr(where)} in it")
        t = tensors[where]
        return t if length is None else t.narrow(-2, 0, length)


def _told(number: int, one: RecordedMap, shelf: _Shelf) -> dict[str, Any]:
    def stored(of: AttentionMap, what: str) -> dict[str, Any]:
        def put(name: str, t: Tensor) -> map_codec.Name:
            return shelf.put(f"{number}.{what}.{name}", t)

        return map_codec.stored(of, put)

    return {
        "name": one.name,
        "kind": one.kind,
        "map": stored(one.weights, "map"),
        "call": one.call,
        "step": one.step,
        # JSON has no infinity
        "certificate": None if one.certificate is None else repr(one.certificate),
        "tolerance": repr(one.tolerance),
        "how": one.captured_from,
        "grid": one.grid,
        "rows": one.rows,
        "heads": one.heads,
        "slope": None if one.gradient is None else stored(one.gradient, "slope"),
    }


def _recorded(told: Mapping[str, Any], get: map_codec.Get) -> RecordedMap:
    return RecordedMap(
        told["name"],
        told["kind"],
        map_codec.loaded(told["map"], get),
        call=told["call"],
        step=told["step"],
        certificate=None if told["certificate"] is None else float(told["certificate"]),
        tolerance=float(told["tolerance"]),
        captured_from=told["how"],
        grid=None if told["grid"] is None else (told["grid"][0], told["grid"][1]),
        rows=None if told["rows"] is None else tuple(told["rows"]),
        heads=None if told["heads"] is None else tuple(told["heads"]),
        gradient=None if told["slope"] is None else map_codec.loaded(told["slope"], get),
    )
