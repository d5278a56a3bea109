"""The notebooks of examples/ as pages, with the outputs that they hold: a hook of mkdocs."""

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))
# a link from examples/ to a page of the documentation, and one from a page to a notebook
_LINK = re.compile(r"\]\(\.\./docs/")
_NOTEBOOK = re.compile(r"\]\((?P<up>(?:\.\./)*)\.\./examples/(?P<name>[\w-]+)\.ipynb\)")


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Called by mkdocs with all files of the documentation."""
    for path in NOTEBOOKS:
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for the source of every page: links to notebooks lead to their pages."""
    return _NOTEBOOK.sub(r"](\g<up>notebooks/\g<name>.md)", markdown)


def page(path: Path) -> str:
    """A notebook as Markdown: its texts, its code, and the texts and pictures that the code printed."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    blocks = [block for cell in cells for block in cell_blocks(cell)]
    note = f"*The notebook `examples/{path.name}`; `jupyter lab examples` runs it.*"
    return "\n\n".join([blocks[0], note, *blocks[1:]]) + "\n"


def cell_blocks(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [_LINK.sub("](../", source)]
    return [fenced(source, "python"), *map(output_block, cell["outputs"])]


def output_block(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f"![The picture that this cell draws](data:image/png;base64,{picture})"
    return fenced("".join(output.get("text") or data["text/plain"]), "text")


def fenced(text: str, language: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"
