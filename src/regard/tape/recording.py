"""Recording: the attention maps of a forward pass, in the order of the calls, and the words they are about."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import overload

from regard.parts import checks
from regard.tape.recorded import Recorded


@dataclass(frozen=True)
class Recording(Sequence[Recorded]):
    """Maps in call order: `tape[3]`, `tape["encoder.layers.0"]` (all calls of that module), `for m in tape`.

    `queries` and `keys` are the pieces of the text, of sample 0 in self attention and cross attention alike; without
    any, positions stand for them. `about` says where the recording comes from (model, versions): text only.
    """

    maps: tuple[Recorded, ...] = ()
    queries: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    about: dict[str, str] = field(default_factory=dict)

    @overload
    def __getitem__(self, index: int) -> Recorded: ...
    @overload
    def __getitem__(self, index: str | slice) -> "Recording": ...
    def __getitem__(self, index: int | str | slice) -> "Recorded | Recording":
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

    def __iter__(self) -> Iterator[Recorded]:
        return iter(self.maps)

    @property
    def names(self) -> tuple[str, ...]:
        """The modules that attended, in the order of their first call."""
        return tuple(dict.fromkeys(one.name for one in self.maps))

    def labelled(self, queries: Sequence[str], keys: Sequence[str] | None = None) -> "Recording":
        """With the pieces of the text; keys are the queries unless they are given."""
        return replace(self, queries=tuple(queries), keys=tuple(queries if keys is None else keys))
