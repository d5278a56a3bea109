"""export: a model as a folder that another library reads, and FORMATS, the names of the libraries."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from regard.common import atomic_files, checks
from regard.inference.exportable import Exportable
from regard.interop.quantize import is_quantized

# the module of each format, which imports its library, and the function in it
FORMATS: dict[str, tuple[str, str]] = {
    "transformers": ("regard.export.transformers_folder", "write_transformers"),
    "ctranslate2": ("regard.export.ctranslate2_folder", "write_ctranslate2"),
    "onnx": ("regard.export.onnx_folder", "write_onnx"),
    "torch": ("regard.export.torch_program", "write_torch"),
}
Writer = Callable[[Exportable, Path], Mapping[str, str]]


def export(parts: Exportable, folder: Path, to: str) -> Mapping[str, str]:
    """Writes the parts of a predictor into a new folder; returns its files, and what each is for.

    Raises ValueError for a part that the format cannot represent, before anything is written.
    """
    checks.known("to", to, FORMATS)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} is not an empty folder; name a new one")
    if is_quantized(parts.model):
        raise ValueError("the model has 8-bit weights, and float32 is exported; export the run that it was made from")
    module, name = FORMATS[to]
    write: Writer = getattr(import_module(module), name)
    atomic_files.make_folder(folder)
    try:
        return write(parts, folder)
    except BaseException:
        if not any(folder.iterdir()):
            folder.rmdir()
        raise
