"""The notebooks of examples/: valid, without stored output, and every cell runs.

The cells run in this process, one namespace per notebook. They are plain Python, which the first test checks, so that a
kernel would add nothing but the seconds that it takes to start.
"""

import ast
from pathlib import Path

import matplotlib
import nbformat
import pytest
import torch

ROOT = Path(__file__).parent.parent
NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "examples").glob("*.ipynb"))}


def cells(name: str) -> list[str]:
    """The sources of the code cells."""
    notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_valid_and_holds_no_output(name: str) -> None:
    notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
    nbformat.validate(notebook)
    assert notebook.cells[0].cell_type == "markdown"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    for source in cells(name):
        ast.parse(source)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_cell_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    backend, threads = matplotlib.get_backend(), torch.get_num_threads()
    matplotlib.use("agg")
    namespace: dict[str, object] = {"__name__": name}
    try:
        for number, source in enumerate(cells(name)):
            exec(compile(source, f"{name}[{number}]", "exec"), namespace)
    finally:
        matplotlib.use(backend)
        torch.set_num_threads(threads)


def test_the_five_notebooks_are_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(NOTEBOOKS) == {"equation", "alignment", "recording", "gate", "fine-tuning"}
    assert all(f"examples/{name}.ipynb" in readme for name in NOTEBOOKS)
