"""A recording as one safetensors file: tensors, and all else as JSON in its metadata. Nothing is ever unpickled.

A map that is computed from projected queries and keys by a dot product and a softmax is stored as those, so that a long
text stays small: `queries`, `keys`, scale, temperature, positions, and the terms of mask and bias. Any other map is
stored as its weights.
"""

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from regard import disk
from regard.parts.map import AttentionMap
from regard.tape import forms
from regard.tape.recorded import Recorded

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


def write(path: Path, maps: Sequence[Recorded], facts: Mapping[str, Any], most: int) -> Path:
    path = place(path)
    longest: dict[Hashable, Tensor] = {}
    each = [part for one in maps for part in (one.weights, one.slope) if part is not None]
    size = sum(forms.parts(part, longest) for part in each) + sum(t.nbytes for t in longest.values())
    if size > most:
        full = sum(not forms.small(one.weights) for one in maps)
        raise ValueError(
            f"the recording would take {size / 1e9:.3g} GB, more than most={most / 1e9:.3g} GB, and {full} of its "
            f"{len(maps)} maps are stored as weights; select fewer layers, heads or samples, or raise most"
        )
    shelf = _Shelf(longest, {}, {})
    told = [_told(number, one, shelf) for number, one in enumerate(maps)]
    text = json.dumps({"format": FORMAT, **facts, "maps": told})
    if not path.parent.is_dir():
        disk.folder(path.parent)
    disk.write(path, disk.safetensors(shelf.tensors, {_KEY: text}))
    return path


def read(path: Path) -> tuple[tuple[Recorded, ...], Labels, Labels, dict[str, str]]:
    """The maps, the pieces of the queries and of the keys, and where it all comes from."""
    path = place(path)
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ImportError("recordings need safetensors; install it with: pip install 'regard[train]'") from error
    if not path.is_file():
        raise FileNotFoundError(f"there is no recording {path}; save one, or name another file")
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get(_KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, OSError) as error:
        raise ValueError(f"{path} is damaged or no safetensors file ({error}); take another one") from error
    if not isinstance(facts, dict) or "format" not in facts:
        raise ValueError(f"{path} is no recording: its metadata says nothing of one; save it with Recording.save")
    if facts["format"] > FORMAT:
        raise ValueError(f"{path} has format {facts['format']}, this version reads up to {FORMAT}; update regard")
    try:
        maps = tuple(_recorded(one, partial(_Shelf.get, tensors)) for one in facts["maps"])
        queries, keys = (None if facts[name] is None else tuple(facts[name]) for name in ("queries", "keys"))
        return maps, queries, keys, dict(facts["about"])
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{path} does not hold what it should ({error!r}); take another one") from error


@dataclass(frozen=True, eq=False)
class _Shelf:
    """Tensors as they go into a file, each once."""

    longest: dict[Hashable, Tensor]
    names: dict[Hashable, str]
    tensors: dict[str, Tensor]

    def put(self, name: str, t: Tensor) -> forms.Name:
        """What the tensor is called there: its own name, or that of one which it begins, and how far."""
        kind = forms.which(t)
        whole = self.longest.get(kind, t)
        if kind not in self.longest or kind not in self.names:
            self.tensors[name] = whole.detach().to("cpu").contiguous()
        if kind in self.longest:
            name = self.names.setdefault(kind, name)
        return name if t.shape == whole.shape else (name, t.shape[-2])

    @staticmethod
    def get(tensors: Mapping[str, Tensor], name: Any) -> Tensor:
        return tensors[name] if isinstance(name, str) else tensors[name[0]].narrow(-2, 0, name[1])


def _told(number: int, one: Recorded, shelf: _Shelf) -> dict[str, Any]:
    def stored(of: AttentionMap, what: str) -> dict[str, Any]:
        def put(name: str, t: Tensor) -> forms.Name:
            return shelf.put(f"{number}.{what}.{name}", t)

        return forms.stored(of, put)

    return {
        "name": one.name,
        "kind": one.kind,
        "map": stored(one.weights, "map"),
        "call": one.call,
        "step": one.step,
        # JSON has no infinity
        "certificate": None if one.certificate is None else repr(one.certificate),
        "tolerance": repr(one.tolerance),
        "how": one.how,
        "grid": one.grid,
        "rows": one.rows,
        "heads": one.heads,
        "slope": None if one.slope is None else stored(one.slope, "slope"),
    }


def _recorded(told: Mapping[str, Any], get: forms.Get) -> Recorded:
    return Recorded(
        told["name"],
        told["kind"],
        forms.loaded(told["map"], get),
        call=told["call"],
        step=told["step"],
        certificate=None if told["certificate"] is None else float(told["certificate"]),
        tolerance=float(told["tolerance"]),
        how=told["how"],
        grid=None if told["grid"] is None else (int(told["grid"][0]), int(told["grid"][1])),
        rows=None if told["rows"] is None else tuple(told["rows"]),
        heads=None if told["heads"] is None else tuple(told["heads"]),
        slope=None if told["slope"] is None else forms.loaded(told["slope"], get),
    )
