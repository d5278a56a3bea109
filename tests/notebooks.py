"""Runs the notebooks of examples/ and stores what their cells show: python -m tests.notebooks

The cells are plain Python and run in this process, one namespace per notebook: a kernel would add nothing but the
seconds that it takes to start. Stored pictures are PNG: the pages that a notebook shows instead would fill it.
"""

import ast
import base64
import contextlib
import io
import os
import tempfile
from pathlib import Path
from typing import Any

import matplotlib
import nbformat
import torch

NOTEBOOKS = {path.stem: path for path in sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))}


def run(name: str) -> list[list[Any]]:
    """The outputs of every code cell, in the working directory."""
    backend, threads = matplotlib.get_backend(), torch.get_num_threads()
    matplotlib.use("agg")
    namespace: dict[str, object] = {"__name__": name}
    try:
        return [_outputs(f"{name}[{n}]", cell.source, namespace) for n, cell in enumerate(code_cells(read(name)))]
    finally:
        matplotlib.use(backend)
        torch.set_num_threads(threads)


def read(name: str) -> Any:
    return nbformat.read(NOTEBOOKS[name], as_version=4)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _outputs(title: str, source: str, namespace: dict[str, object]) -> list[Any]:
    """Runs a cell: its printed text, and the value of an expression at its end."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(ast.Module(body, []), title, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), title, "eval"), namespace)
    outputs = [nbformat.v4.new_output("stream", text=text)] if (text := printed.getvalue()) else []
    if value is not None:
        outputs.append(nbformat.v4.new_output("display_data", data=_shown(value)))
    return outputs


def _shown(value: Any) -> dict[str, str]:
    data = {"text/plain": repr(value)}
    if hasattr(value, "_repr_mimebundle_"):
        picture = value._repr_mimebundle_(include=["image/png"])["image/png"]
        data["image/png"] = picture if isinstance(picture, str) else base64.b64encode(picture).decode()
    return data


def main() -> None:
    for name, path in NOTEBOOKS.items():
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            outputs = run(name)
        notebook = read(name)
        for cell, shown in zip(code_cells(notebook), outputs, strict=True):
            cell.outputs = shown
        path.write_text(nbformat.writes(notebook).rstrip("\n") + "\n", encoding="utf-8")
        print(f"{os.path.relpath(path)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
