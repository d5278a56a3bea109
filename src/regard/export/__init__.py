"""Models as files of other libraries: one file per format."""

from regard.export.catalogue import FORMATS, export

__all__ = ["FORMATS", "export"]
