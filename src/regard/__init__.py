"""Attention for PyTorch, as one equation: weights = normalize(score(q, k) + bias, mask); out = read(weights, v).

Importing the package loads nothing, not even torch: `__init__.pyi` lists the public names with their modules, and each
is imported when it is first used. The command line can therefore print its help at once.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
