"""Where in a model something happens: the names of the modules that are running, and what the innermost was given."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakIdKeyDictionary

from regard.attn import checks

# how modules that look at another sequence are called, and what they are given
_CROSS = re.compile(r"cross|encoder_att|enc_?dec", re.IGNORECASE)
_SELF = re.compile(r"self", re.IGNORECASE)
_SOURCES = ("key_value_states", "encoder_hidden_states")
# tokens before an image's patches: a class, registers
_PREFIX = 16
_CACHES = ("past_key_values", "past_key_value", "layer_past", "kv_cache", "cache_position")


class ModuleFrame(NamedTuple):
    """A module that is running."""

    name: str
    module: nn.Module | None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}


class ModuleStack:
    """The stack of a model's modules that are running, kept by hooks of its own."""

    def __init__(self, model: nn.Module) -> None:
        self.names: dict[int, list[str]] = {}
        self.modules: dict[str, nn.Module] = {}
        for full, module in model.named_modules(remove_duplicate=False):
            name = plain(full)
            self.modules[name] = module
            self.names.setdefault(id(module), []).append(name)
        self.stack: list[ModuleFrame] = []
        self.entered = False  # has any of them run?
        self.failed: Callable[[], None] = lambda: None  # called when one ends by an error
        self._grid: tuple[int, int] | None = None
        self._told: tuple[int, int] | None = None  # a grid that a layer tells, for as long as it does
        # an image that was cut into patches, until these are laid in a row; where that was, and what it was part of
        self.images: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._cut_in: tuple[nn.Module | None, ...] = ()
        self._tower: nn.Module | None = None
        self._model = model

    def attach(self) -> list[RemovableHandle]:
        handles = []
        for module in {id(one): one for one in self.modules.values()}.values():
            if isinstance(module, nn.Conv2d) and module.kernel_size == module.stride != (1, 1):
                handles.append(module.register_forward_hook(self._patched))
            # torch's own leaves and the terms of this library attend to nothing by themselves, and there are many
            room = type(module).__module__
            leaf = room.startswith("torch.nn.modules.") and next(module.children(), None) is None
            if leaf or room.startswith("regard.attn.terms."):
                continue
            handles.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
            handles.append(module.register_forward_hook(self._leave, always_call=True))
        return handles

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.entered = True
        self.stack.append(ModuleFrame(self.name_of(module), module, args, kwargs))

    def _leave(self, module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        # a forward that raised may have left others behind
        while self.stack and self.stack.pop().module is not module:
            pass
        if out is None and sys.exc_info()[0] is not None:
            self.failed()
        # patches are those of the tower that attends to them, and of one call
        if module is self._tower or not self.stack:
            self._grid = self._tower = None

    def _patched(self, module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        """A convolution that cuts an image into patches tells how they lie."""
        self.images[out] = tuple(out.shape[-2:])

    def laid(self, image: Tensor, out: Tensor) -> None:
        """A feature map was laid out anew: in a row, its places are tokens. One that never is, is no text's grid."""
        grid = self.images[image]
        if out.ndim < 4 and grid[0] * grid[1] in out.shape:
            self._grid, self._tower = grid, None
            self._cut_in = tuple(frame.module for frame in self.stack)
        else:
            self.images[out] = grid

    def grid(self, keys: int) -> tuple[int, int] | None:
        """How the last of these keys lie in an image, if one was cut into that many patches, behind a few tokens."""
        if self._told is not None and 0 <= keys - self._told[0] * self._told[1] <= _PREFIX:
            return self._told
        if self._grid is None or not 0 <= keys - self._grid[0] * self._grid[1] <= _PREFIX:
            return None
        if self._tower is None:
            both = [a for a, b in zip(self._cut_in, self.stack, strict=False) if a is b.module]
            self._tower = both[-1] if both else None
        return self._grid

    @contextmanager
    def lying(self, grid: tuple[int, int]) -> Iterator[None]:
        """Keys that are heard inside lie so in an image."""
        before, self._told = self._told, grid
        try:
            yield
        finally:
            self._told = before

    @property
    def here(self) -> ModuleFrame:
        return self.stack[-1] if self.stack else ModuleFrame("", self._model)

    def name_of(self, part: nn.Module) -> str:
        """The name of a module; of one that has several, that which lies where the model is running."""
        names = self.names.get(id(part), [""])
        if len(names) > 1 and self.stack:
            inside = [name for name in names if name.startswith(self.stack[-1].name)]
            return (inside or names)[0]
        return names[0]

    def known(self, part: nn.Module) -> bool:
        return id(part) in self.names


def plain(name: str) -> str:
    """The name without what torch.compile wraps around."""
    return name.replace("_orig_mod.", "").removesuffix("_orig_mod").removesuffix(".") if "_orig_mod" in name else name


def looks_elsewhere(frame: ModuleFrame, queries: int, keys: int) -> bool:
    """Is this attention to another sequence?  By what the module was given, by its name, by the lengths."""
    if any(isinstance(frame.kwargs.get(name), Tensor) for name in _SOURCES):
        return True
    own = frame.name.rsplit(".", 2)[-2:]
    if any(_CROSS.search(part) for part in own):
        return True
    if queries == keys or any(_SELF.search(part) for part in own):
        return False
    return not any(frame.kwargs.get(name) is not None for name in _CACHES)


def chosen(patterns: str | Sequence[str] | None, names: Sequence[str]) -> list[str] | None:
    """Patterns of module names, each of which fits some."""
    if patterns is None:
        return None
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    for pattern in wanted:
        if not isinstance(pattern, str):
            raise TypeError(f"layers must be names or patterns of modules, got {pattern!r}; try layers='encoder.*'")
        if not any(fnmatchcase(name, pattern) for name in names):
            checks.known("layers", pattern, [name for name in names if name][:40])
    return wanted
