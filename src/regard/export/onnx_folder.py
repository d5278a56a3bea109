"""write_onnx: graphs as ONNX files, which ONNX Runtime and others run without torch."""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch

from regard.export.graph_files import write_graphs
from regard.export.graphs import Graph
from regard.export.torch_program import program_of
from regard.inference.exportable import Exportable


def write_onnx(parts: Exportable, folder: Path) -> Mapping[str, str]:
    """One .onnx per graph, with its weights in it."""
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError("--to onnx needs: pip install 'regard[export]'") from error
    return write_graphs(parts, folder, ".onnx", _write)


def _write(graph: Graph, path: Path) -> None:
    with _quiet():
        program = torch.onnx.export(
            program_of(graph),
            dynamo=True,
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            verbose=False,
        )
    assert program is not None
    program.save(str(path), external_data=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without remarks of torch's exporter about libraries that are not installed and functions that it still uses."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
