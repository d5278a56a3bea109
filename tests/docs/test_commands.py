"""Every command that a page shows is one that the command line understands, also where it is too long to run."""

import importlib
import re
import shlex
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, ROOT, blocks

START = re.compile(r"^(?:torchrun .*?-m )?regard (?P<rest>.+)$")


def shown(page: Path) -> list[str]:
    """The commands of regard on a page, without what a shell makes of them."""
    found = []
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "bash":
            lines = block.text.replace("\\\n", " ").splitlines()
            found += [match["rest"] for line in lines if (match := START.match(line.strip()))]
    return found


COMMANDS = sorted({command for page in PAGES for command in shown(page)})


@pytest.mark.parametrize("command", COMMANDS)
def test_command_is_understood(command: str) -> None:
    pytest.importorskip("tyro")
    from regard.cli import VERBS
    from regard.cli.options import parse

    verb, *words = shlex.split(command, comments=True)
    assert verb in VERBS
    module = importlib.import_module(f"regard.cli.{'listing' if verb == 'list' else verb}")
    if verb in ("train", "compare") and "--resume" not in words:
        assert words.pop(0) == "translate"
    options = "Options" if verb != "train" else "Resume" if "--resume" in words else "New"
    parse(getattr(module, options), f"regard {verb}", words)


def test_commands_are_found() -> None:
    assert any(command.startswith("train translate") for command in shown(ROOT / "docs/guides/translate.md"))
    assert any("-m regard train" in page.read_text(encoding="utf-8") for page in PAGES)
