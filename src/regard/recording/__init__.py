"""Recording, analysis and storage of the attention maps of any model, each with a certificate of its accuracy."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
