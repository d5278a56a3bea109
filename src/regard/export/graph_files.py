"""write_graphs: a file per graph, and beside them tokenizers and model.json, with the numbers that a caller needs."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from regard.export.graphs import Graph, graphs_of
from regard.export.vocabulary_files import TARGET_TOKENIZER, TOKENIZER, write_json, write_tokenizer
from regard.inference.exportable import Exportable

ABOUT = "model.json"


def write_graphs(
    parts: Exportable, folder: Path, suffix: str, write: Callable[[Graph, Path], object]
) -> Mapping[str, str]:
    """Writes every graph by `write`, then tokenizers and model.json; returns the purposes of the files."""
    files = {}
    for graph in graphs_of(parts):
        name = f"{graph.name}{suffix}"
        write(graph, folder / name)
        files[name] = f"{', '.join(graph.inputs)} -> {', '.join(graph.outputs)}"
    if write_tokenizer(parts.vocabulary, folder / TOKENIZER):
        files[TOKENIZER] = "of texts, for the library tokenizers"
    if parts.target is not None and write_tokenizer(parts.target, folder / TARGET_TOKENIZER):
        files[TARGET_TOKENIZER] = "of translations, for the library tokenizers"
    write_json(folder / ABOUT, about_graphs(parts))
    return {**files, ABOUT: "names and sizes of inputs, special tokens, classes"}


def about_graphs(parts: Exportable) -> dict[str, Any]:
    """The content of model.json."""
    vocabulary = parts.vocabulary if parts.target is None else parts.target
    return {
        "model": type(parts.model).__name__,
        "graphs": {graph.name: _graph(graph) for graph in graphs_of(parts)},
        "special_tokens": {**vocabulary.special, "forbidden": list(vocabulary.forbidden)},
        **({"classes": list(parts.classes)} if parts.classes else {}),
    }


def _graph(graph: Graph) -> dict[str, Any]:
    """Inputs with their sizes: a name may be any number, that of a past 0, too."""
    inputs = {
        name: [size if size is not None else tensor.shape[n] for n, size in enumerate(graph.axes[name])]
        for name, tensor in graph.inputs.items()
    }
    return {"inputs": inputs, "outputs": list(graph.outputs), "longest": graph.longest}
