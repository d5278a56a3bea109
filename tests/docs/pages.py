"""What the pages hold: examples and commands that run, source that is quoted, pictures that examples draw.

    python -m tests.docs.pages [page …]      quotes the source again, and draws the pictures of the guides again

The blocks of one page share a namespace, as they do in the reader's head. A block under `<!-- not run: reason -->` is
left out. One under `<!-- source: regard.layers.rnn.decoders.Luong.step -->` is the source of that name, word for word.
Of commands only those that begin with `regard` run, in this process, and only where a page is about them.
"""

import contextlib
import doctest
import importlib
import inspect
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

ROOT = Path(__file__).parents[2]
PAGES = [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if path.exists()]
# pages whose examples print what stands behind them
MECHANISMS = ROOT / "docs/mechanisms"
# pages whose commands run: these are small on purpose
COMMANDED = {
    ROOT / f"docs/guides/{name}.md"
    for name in (
        "translate",
        "classify-text",
        "tag",
        "match",
        "answer",
        "embed",
        "read",
        "select-response",
        "respond",
        "track",
        "language-model",
        "masked-lm",
        "images",
        "clips",
        "attack",
        "explain",
        "glimpses",
        "captions",
        "transcribe",
        "gan",
        "export",
    )
}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

OPENING = re.compile(r"^(?P<indent>\s*)```\s*(?P<language>python|pycon|bash)\b")
NOT_RUN = re.compile(r"^\s*<!-- not run: \S.* -->\s*$")
SOURCE = re.compile(r"^\s*<!-- source: (?P<name>[\w.]+) -->\s*$")
PICTURE = re.compile(r"\]\(\.\./images/(?P<file>[\w-]+\.png)\)")


class Block(NamedTuple):
    """A fenced block: its language, its text, its first line counted from 0, and what is to be done with it."""

    language: str
    text: str
    line: int
    run: bool = True
    source: str | None = None  # the name of what it quotes


def blocks(page: str) -> list[Block]:
    lines = page.splitlines()
    found, at = [], 0
    while at < len(lines):
        opening = OPENING.match(lines[at])
        if opening is None:
            at += 1
            continue
        first = at + 1
        last = next(n for n in range(first, len(lines)) if lines[n].strip() == "```")
        text = textwrap.dedent("".join(f"{line}\n" for line in lines[first:last]))
        above = lines[at - 1] if at else ""
        quotes = SOURCE.match(above)
        run = not NOT_RUN.match(above) and quotes is None
        found.append(Block(opening["language"], text, first, run, quotes["name"] if quotes else None))
        at = last + 1
    return found


def script(name: str) -> ModuleType:
    """A script of docs/, with what stands beside it, as its own command has it."""
    folder = str(ROOT / "docs")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


def source(name: str) -> str:
    """The source of a class or function, by its name with that of its module, as it is written."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            thing = getattr(thing, part)
        return textwrap.dedent(inspect.getsource(thing))
    raise ValueError(f"{name} is in no module; write <!-- source: regard.layers.rnn.decoders.Luong.step -->")


def quoted(page: str) -> str:
    """The page with every quotation as the source now is."""
    lines = page.splitlines()
    for block in reversed(blocks(page)):
        if block.source is not None:
            lines[block.line : block.line + block.text.count("\n")] = source(block.source).splitlines()
    return "\n".join(lines) + "\n"


def run_doctest(test: doctest.DocTest) -> None:
    report = io.StringIO()
    failures, _ = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.write, clear_globs=False)
    assert not failures, report.getvalue()


def commands(block: str) -> list[list[str]]:
    """The arguments of every command of a block, or none if one of them is not regard's."""
    found, begun = [], ""
    for line in block.replace("\\\n", " ").splitlines():
        begun += line
        try:
            found.append(shlex.split(begun, comments=True))
            begun = ""
        except ValueError:  # a quotation goes on in the next line
            begun += "\n"
    assert not begun, f"a quotation has no end: {begun}"
    return [words[1:] for words in found if words] if all(w[0] == "regard" for w in found if w) else []


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Examples are small: on a busy machine two threads wait for each other longer than they work."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def in_process() -> Iterator[None]:
    """The trainings of a comparison take long to start as processes of their own."""
    from tests.comparisons import train_in_process

    from regard.experiments import comparison

    with mock.patch.object(comparison, "_process", train_in_process):
        yield


@one_thread()
def run(page: Path) -> None:
    """Every block of the page that is to run, in the present folder."""
    namespace: dict[str, object] = {"__name__": "__page__"}
    text = page.read_text(encoding="utf-8")
    for block in blocks(text):
        if not block.run:
            continue
        if block.language == "pycon":
            run_doctest(doctest.DocTestParser().get_doctest(block.text, namespace, page.name, str(page), block.line))
        elif block.language == "python":
            # The empty lines make a traceback point at the line of the page.
            code = compile("\n" * block.line + block.text, str(page), "exec")
            output = io.StringIO()
            with contextlib.redirect_stdout(output), in_process():
                exec(code, namespace)
            if page.parent == MECHANISMS and (lines := shown(text, block)):
                assert output.getvalue().splitlines() == lines, (
                    f"{page.name}:{block.line + 1} prints\n{output.getvalue()}"
                )
        elif page in COMMANDED:
            place = f"{page.name}:{block.line + 1}"
            printed = "".join(command(words, place) for words in commands(block.text))
            for line in shown(text, block):
                assert _blurred(line) in map(_blurred, printed.splitlines()), (
                    f"{place} does not print {line}\n{printed}"
                )


def shown(page: str, block: Block) -> list[str]:
    """The lines that the page shows as printed right behind a block; what a model says is left out."""
    behind = "\n".join(page.splitlines()[block.line + block.text.count("\n") :])
    found = re.match(r"\s*```\n\n```text\n(.*?)```", behind, flags=re.DOTALL)
    return [line for line in found[1].splitlines() if "→" not in line] if found else []


def _blurred(line: str) -> str:
    """A line without its numbers, which are the machine's matter, and without what depends on them."""
    return re.sub(r"\d[\d.,:]*", "#", line.replace("  (the best so far)", ""))


def command(words: list[str], where: str) -> str:
    """What `regard …` says, in this process; it must end well."""
    from regard.cli.main import main

    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), in_process():
            ended = main(words)
        said.seek(0)
        told = said.read()
    assert ended == 0, f"{where}: regard {shlex.join(words)} ended with {ended}\n{told}"
    return told


@contextlib.contextmanager
def elsewhere() -> Iterator[Path]:
    """An empty folder to be in."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


def drawn(page: Path, images: Path = ROOT / "docs/images") -> None:
    """The pictures that a page shows and its own examples draw, drawn again; in few colours, to keep them small."""
    images, drawing = images.resolve(), script("drawing")
    with elsewhere() as folder:
        run(page)
        for name in set(PICTURE.findall(page.read_text(encoding="utf-8"))):
            if (folder / name).exists():
                shutil.copy(drawing.few_colours(folder / name, 256), images / name)
                print(f"{page.name}: {name}")


def main() -> None:
    named = [Path(name).resolve() for name in sys.argv[1:]]
    for page in named or [path for path in PAGES if path.parent.name == "guides"]:
        text = page.read_text(encoding="utf-8")
        if text != quoted(text):
            page.write_text(quoted(text), encoding="utf-8")
            print(f"{page.name}: quoted again")
        if PICTURE.search(text):
            drawn(page)


if __name__ == "__main__":
    main()
