"""Every command that a page shows is one that the command line understands, also where it is too long to run."""

import importlib
import re
import shlex
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, ROOT, blocks

START = re.compile(r"^(?:regard|torchrun) .+$")


def shown(page: Path) -> list[str]:
    """The commands of regard on a page."""
    found = []
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "bash":
            lines = block.text.replace("\\\n", " ").splitlines()
            found += [line.strip() for line in lines if START.match(line)]
    return found


COMMANDS = sorted({command for page in PAGES for command in shown(page)})


@pytest.mark.parametrize("command", COMMANDS)
def test_command_is_understood(command: str) -> None:
    pytest.importorskip("tyro")
    from regard.cli.main import VERBS
    from regard.cli.parsing.options import parse
    from regard.cli.verbs.compare import VARIED
    from regard.tasks.registry import TASKS

    called, *words = shlex.split(command, comments=True)
    if called == "torchrun":
        # it looks for options of its own in all that it is given
        from torch.distributed.run import parse_args

        passed = parse_args(words)
        assert passed.module
        assert passed.training_script == "regard"
        words = passed.training_script_args
    verb, *words = words
    assert verb in VERBS
    module = importlib.import_module(f"regard.cli.verbs.{verb}")
    task, options = None, "Options" if verb != "train" else "Resume" if "--resume" in words else "New"
    if verb in ("train", "compare") and "--resume" not in words:
        name = words.pop(0)
        task = TASKS[name]
        options = VARIED[name][0].__name__ if verb == "compare" else options
    parse(getattr(module, options), f"regard {verb}", words, task=task)


def test_commands_are_found() -> None:
    found = shown(ROOT / "docs/guides/translate.md")
    assert any(command.startswith("regard train translate") for command in found)
    assert any(command.startswith("torchrun") for command in found)
