"""Attention for PyTorch, as one equation: weights = normalize(score(q, k) + bias, mask); out = read(weights, v).

Importing the package loads nothing, not even torch: `__init__.pyi` lists the public names with their modules, and each
is imported when it is first used. The command line can therefore print its help at once.
"""

import lazy_loader

__version__ = "0.1.0"

_import_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name in __all__ or name.startswith("_"):
        return _import_name(name)
    from regard.common.suggestions import nearest

    near = nearest(name, __all__)
    hint = "dir(regard) lists all names" if near is None else f"did you mean {near}?"
    raise AttributeError(f"regard has no {name}; {hint}")
