"""Attention for PyTorch, as one equation: weights = normalize(score(q, k) + bias, mask); out = read(weights, v).

Functions, catalogues, layers and everyday terms are here. All terms, gates, models and results are in the namespace of
their kind: `regard.masks`, `regard.gates`, `regard.models` and the others. A term that is both here and in a namespace
is the same object; the documentation writes the shorter name.

Importing the package loads nothing, not even torch: `__init__.pyi` lists the public names with their modules, and each
is imported when it is first used. The command line can therefore print its help at once.
"""

import lazy_loader

__version__ = "0.1.0"

_import_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def _paths() -> dict[str, str]:
    """{public name: its path}, with the names of the namespaces, which are imported for it."""
    from inspect import ismodule

    values = {name: _import_name(name) for name in __all__}
    spaces = {name: getattr(value, "__all__", dir(value)) for name, value in values.items() if ismodule(value)}
    paths = {name: f"regard.{space}.{name}" for space, names in spaces.items() for name in names if name[0] != "_"}
    return {**paths, **{name: f"regard.{name}" for name in __all__}}


def __getattr__(name: str) -> object:
    if name in __all__ or name.startswith("_"):
        return _import_name(name)
    from regard.common.suggestions import nearest

    paths = _paths()
    near = nearest(name, paths)
    hint = "dir(regard) lists all names" if near is None else f"did you mean {paths[near]}?"
    raise AttributeError(f"regard has no {name}; {hint}")
