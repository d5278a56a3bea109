"""write_torch: graphs as programs of torch.export, .pt2 files, which torch loads without regard."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.export import Dim

from regard.export.graph_files import write_graphs
from regard.export.graphs import Graph
from regard.inference.exportable import Exportable

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def program_of(graph: Graph) -> "ExportedProgram":
    """The traced graph, in which every named axis may have any size."""
    shapes = {
        name: {axis: Dim.AUTO for axis, size in enumerate(sizes) if size is not None}
        for name, sizes in graph.axes.items()
    }
    with torch.no_grad():
        program = torch.export.export(graph.module, (), dict(graph.inputs), dynamic_shapes=shapes, strict=False)
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in graph.axes:
            fixed = [n for n in shapes[node.name] if isinstance(node.meta["val"].shape[n], int)]
            assert not fixed, f"axis {fixed[0]} of {node.name} is fixed in {graph.name}"
    return program


def write_torch(parts: Exportable, folder: Path) -> Mapping[str, str]:
    """One .pt2 per graph: torch.export.load(path).module()(**inputs)."""
    return write_graphs(parts, folder, ".pt2", lambda graph, path: torch.export.save(program_of(graph), path))
