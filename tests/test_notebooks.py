"""The notebooks of examples/: valid, every cell runs, and the stored outputs are those of the run."""

from pathlib import Path

import nbformat
import pytest
from tests.docs.pages import script
from tests.notebooks import NOTEBOOKS, code_cells, read, run

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_cell_runs_and_shows_what_is_stored(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = read(name)
    nbformat.validate(notebook)
    assert notebook.cells[0].cell_type == "markdown"
    assert NOTEBOOKS[name].stat().st_size < 200_000
    monkeypatch.chdir(tmp_path)
    # numbers and pixels may differ by machine; kinds do not
    kinds = [[sorted(output.get("data", {"text": ""})) for output in outputs] for outputs in run(name)]
    stored = [[sorted(output.get("data", {"text": ""})) for output in cell.outputs] for cell in code_cells(notebook)]
    assert stored == kinds, "python -m tests.notebooks stores the outputs"
    assert any(stored)


def test_the_alignment_is_drawn() -> None:
    outputs = [output for cell in code_cells(read("alignment")) for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)


def test_the_five_notebooks_are_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(NOTEBOOKS) == {"equation", "alignment", "recording", "gate", "fine-tuning"}
    assert all(f"examples/{name}.ipynb" in readme for name in NOTEBOOKS)


def test_the_pages_of_notebooks_show_their_outputs() -> None:
    pages = script("notebook_pages")
    for name, path in NOTEBOOKS.items():
        text = pages.page(path)
        outputs = [output for cell in code_cells(read(name)) for output in cell.outputs]
        assert text.count("](data:image/png;base64,") == sum("data" in output for output in outputs), name
        assert all(output["text"].rstrip() in text for output in outputs if "text" in output), name
        assert "](../docs/" not in text, name
    assert pages.on_page_markdown("[a](../../examples/gate.ipynb)") == "[a](../notebooks/gate.md)"
