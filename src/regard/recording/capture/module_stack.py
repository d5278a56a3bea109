"""ModuleStack: the modules of a model that are running, with their names and arguments, and the grids of its images."""

import itertools
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from regard.common import checks
from regard.recording.capture.module_plan import may_attend, plan_of

# names of modules that attend to another sequence, and of their arguments
_CROSS = re.compile(r"cross|encoder_att|enc_?dec", re.IGNORECASE)
_SELF = re.compile(r"self", re.IGNORECASE)
_ANY_ATTENTION = ("self", "attention", "attn")
_SOURCES = ("key_value_states", "encoder_hidden_states")
# tokens before an image's patches: a class, registers
_PREFIX = 16
# names of hooks: torch's own handles count upwards, and not safely in several threads
_HOOK_NUMBERS = itertools.count(-1, -1)
_CACHES = ("past_key_values", "past_key_value", "layer_past", "kv_cache", "cache_position")
_NO_ARGUMENTS: Mapping[str, Any] = {}


class ModuleFrame(NamedTuple):
    """A module that is running."""

    name: str
    module: nn.Module | None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    number: int = 0  # number of the call, among all calls of modules


class ModuleStack:
    """The stack of a model's modules that are running in this thread, kept by hooks of its own."""

    def __init__(self, model: nn.Module) -> None:
        self._plan = plan_of(model)
        self.names, self.modules = self._plan.names, self._plan.modules(model)
        self.stack: list[ModuleFrame] = []
        self.has_run = False
        self.on_error: Callable[[], None] = lambda: None  # called when a module ends by an error
        # called with a module that ends, and its output
        self.on_leave: Callable[[ModuleFrame, Any], None] = lambda frame, out: None
        self._count = 0  # calls of modules so far
        self.attention_modules: dict[str, str] = {}  # types of the modules that ran and are named as attention
        self._grid: tuple[int, int] | None = None
        self._layer_grid: tuple[int, int] | None = None  # grid of a layer that names it, while the layer runs
        # images that were cut into patches, until these become a sequence; the modules that ran then, and the innermost
        # of them that attends to the patches
        self.images: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._patch_modules: tuple[nn.Module | None, ...] = ()
        self._tower: nn.Module | None = None
        # sequences of patches that such a tower returned, with their grids: keys of a decoder's cross attention
        self._patches: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._model = model
        self._thread = threading.get_ident()
        self.foreign_modules: dict[str, None] = {}  # types of modules outside of the model that attended

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Follows the calls of modules in this thread while the block runs."""
        self._thread = threading.get_ident()
        modules, model = self._plan.hooked(self._model), self._model
        # one number for the hooks of all modules: a handle for each would cost more than the hooks
        number = next(_HOOK_NUMBERS)
        cuts = [each for each in self._plan.convolutions(model) if each.kernel_size == each.stride != (1, 1)]
        handles = [each.register_forward_hook(self._track_patches) for each in cuts]
        enter, leave = self._enter, self._leave
        for module in modules:
            module._forward_pre_hooks[number] = enter
            module._forward_pre_hooks_with_kwargs[number] = True
            module._forward_hooks[number] = leave
            module._forward_hooks_always_called[number] = True
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            for module in modules:
                module._forward_pre_hooks.pop(number, None)
                module._forward_pre_hooks_with_kwargs.pop(number, None)
                module._forward_hooks.pop(number, None)
                module._forward_hooks_always_called.pop(number, None)

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] = _NO_ARGUMENTS) -> None:
        # another thread that runs the model has these hooks, too, and without kwargs while they are set or removed
        if threading.get_ident() != self._thread:
            return
        self.has_run = True
        name = self.name_of(module)
        if name in self._plan.attention:
            self.attention_modules[name] = type(module).__name__
        self._count += 1
        self.stack.append(ModuleFrame(name, module, args, kwargs, self._count))

    def _leave(self, module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        # a forward that raised may have left other frames above
        frame = None
        while self.stack and (frame is None or frame.module is not module):
            frame = self.stack.pop()
        if out is None and sys.exc_info()[0] is not None:
            self.on_error()
        elif frame is not None:
            self.on_leave(frame, out)
        if module is self._tower and self._grid is not None:
            self._note_patches(self._grid, out)
        # a grid is valid in the tower that attends to its patches, and for one call
        if module is self._tower or not self.stack:
            self._grid = self._tower = None

    def _track_patches(self, module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        """Notes the grid of a convolution that cuts an image into patches."""
        if threading.get_ident() == self._thread:
            self.images[out] = tuple(out.shape[-2:])

    def track_reshape(self, image: Tensor, out: Tensor) -> None:
        """Notes a reshape of a feature map: once it has fewer than four axes, its cells are tokens with this grid."""
        grid = self.images[image]
        if out.ndim < 4 and grid[0] * grid[1] in out.shape:
            self._grid, self._tower = grid, None
            self._patch_modules = tuple(frame.module for frame in self.stack)
        else:
            self.images[out] = grid

    def _note_patches(self, grid: tuple[int, int], out: Any) -> None:
        """Notes the sequences in the output of a tower that have its patches, after a few tokens."""
        values = out.values() if isinstance(out, Mapping) else out if isinstance(out, tuple | list) else (out,)
        for value in values:
            if isinstance(value, Tensor) and value.ndim == 3 and 0 <= value.shape[1] - grid[0] * grid[1] <= _PREFIX:
                self._patches[value] = grid

    def source_grid(self, keys: int) -> tuple[int, int] | None:
        """(height, width) of the last of these keys, if they are patches of an image that a running module received."""
        if not self._patches.data:
            return None
        for frame in reversed(self.stack):
            for value in (*frame.args, *frame.kwargs.values()):
                if isinstance(value, Tensor) and value in self._patches and value.shape[1] == keys:
                    grid: tuple[int, int] = self._patches[value]
                    return grid
        return None

    def grid(self, keys: int) -> tuple[int, int] | None:
        """(height, width) of the last of these keys, if an image was cut into that many patches, after a few tokens."""
        if self._layer_grid is not None and 0 <= keys - self._layer_grid[0] * self._layer_grid[1] <= _PREFIX:
            return self._layer_grid
        if self._grid is None or not 0 <= keys - self._grid[0] * self._grid[1] <= _PREFIX:
            return None
        if self._tower is None:
            shared = [a for a, b in zip(self._patch_modules, self.stack, strict=False) if a is b.module]
            self._tower = shared[-1] if shared else None
        return self._grid

    @contextmanager
    def spatial_keys(self, grid: tuple[int, int]) -> Iterator[None]:
        """The keys of attention inside are the cells of this grid."""
        before, self._layer_grid = self._layer_grid, grid
        try:
            yield
        finally:
            self._layer_grid = before

    @property
    def current(self) -> ModuleFrame:
        return self.stack[-1] if self.stack else ModuleFrame("", self._model)

    def is_foreign_call(self, *, is_attention: bool = True) -> bool:
        """Whether the running call is part of a module outside of the model, such as a teacher or a draft model.

        A module that the model calls, registered or not, is a part of it. Outside of its forward, the innermost method
        of a module that is running tells: the model may attend in a method of its own. The type of a module that
        attends is noted.
        """
        if self.stack:
            return False
        module = _running_module(sys._getframe(1))
        if module is None or id(module) in self.names:
            return False
        if is_attention:
            self.foreign_modules[type(module).__name__] = None
        return True

    def name_of(self, module: nn.Module) -> str:
        """The name of a module; of one that has several, the one inside the running module."""
        names = self.names.get(id(module), [""])
        if len(names) > 1 and self.stack:
            inside = [name for name in names if name.startswith(self.stack[-1].name)]
            return (inside or names)[0]
        return names[0]

    def has_module(self, module: nn.Module) -> bool:
        return id(module) in self.names


def _running_module(frame: FrameType | None) -> nn.Module | None:
    """The module whose method, or function of a module, runs innermost; torch's own leaves belong to their caller."""
    while frame is not None:
        code = frame.f_code
        if code.co_argcount:
            first = frame.f_locals.get(code.co_varnames[0])
            if isinstance(first, nn.Module) and may_attend(first):
                return first
        frame = frame.f_back
    return None


def is_cross_attention(frame: ModuleFrame, queries: int, keys: int) -> bool:
    """Whether a module attends to another sequence: by its arguments, by its name, by the lengths."""
    for name in _SOURCES:
        if isinstance(frame.kwargs.get(name), Tensor):
            return True
    is_cross, is_self = _attention_names(frame.name)
    if is_cross or is_self or queries == keys:
        return is_cross
    return not any(frame.kwargs.get(name) is not None for name in _CACHES)


@lru_cache(maxsize=4096)
def _attention_names(name: str) -> tuple[bool, bool]:
    """Whether the name of a module is that of cross attention, and of self attention."""
    parts, count = name.split("."), 2
    # parts that every attention has say nothing: the cross attention of Perceiver is "cross_attention.attention.self"
    while count < len(parts) and all(part in _ANY_ATTENTION for part in parts[-count:]):
        count += 1
    parts = parts[-count:]
    return any(_CROSS.search(part) for part in parts), any(_SELF.search(part) for part in parts)


def checked_patterns(patterns: str | Sequence[str] | None, names: Sequence[str]) -> list[str] | None:
    """Patterns of module names as a list; raises if one matches no name."""
    if patterns is None:
        return None
    checked = [patterns] if isinstance(patterns, str) else list(patterns)
    for pattern in checked:
        if not isinstance(pattern, str):
            raise TypeError(f"layers must be names or patterns of modules, got {pattern!r}; try layers='encoder.*'")
        if not any(fnmatchcase(name, pattern) for name in names):
            checks.known("layers", pattern, [name for name in names if name][:40])
    return checked


def foreign_warning(caller: str, stack: ModuleStack) -> str:
    """The sentence about modules outside of the model that attended in a block of `caller`."""
    types = ", ".join(list(stack.foreign_modules)[:4]) + (", …" if len(stack.foreign_modules) > 4 else "")
    return (
        f"{caller} left alone the attention of {types}, which ran in the block and is no part of the model; run other "
        "models outside of the block, or pass a module that contains them all"
    )
