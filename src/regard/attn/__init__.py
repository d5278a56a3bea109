"""The attention equation: terms, calls, backends, maps, mechanisms and the layers built on them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
