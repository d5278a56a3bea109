"""Every command that a page shows is understood by the command line, also where it takes too long to run."""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, ROOT, blocks
from tests.for_each import for_each

START = re.compile(r"^(?:regard|torchrun) .+$")


def shown(page: Path) -> list[str]:
    """The commands of regard on a page."""
    commands = []
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "bash":
            lines = iter(block.text.replace("\\\n", " ").splitlines())
            commands += [whole(line, lines).strip() for line in lines if START.match(line)]
    return commands


def whole(line: str, following: Iterator[str]) -> str:
    """The command that begins with this line: a quoted text may go on in the next ones."""
    try:
        shlex.split(line, comments=True)
    except ValueError:
        return whole(f"{line}\n{next(following)}", following)
    return line


# the task that a guide is about; the commands of other pages may be about any task
TASK_OF_GUIDE = {
    "translate": "translate",
    "images": "classify-image",
    "clips": "classify-clip",
    "glimpses": "glimpse",
    "captions": "caption",
    "gan": "generate-image",
    "language-model": "language-model",
    "agent": "agent",
}
COMMANDS = sorted({(command, page.stem) for page in PAGES for command in shown(page)})


def parse_with_run(verb: str, words: Sequence[str], page: str) -> None:
    """Parses a command that reads a run with the options of the task of the page, or of any task."""
    from regard.cli.main import TASK_OPTIONS, options_class
    from regard.cli.parsing.parser import parse
    from regard.cli.run_options import LoadOptions
    from regard.cli.verbs.aliases import ALIASES
    from regard.tasks.registry import TASKS

    owner = ALIASES[verb].task if verb in ALIASES else TASK_OF_GUIDE.get(page)
    names = TASKS if owner is None else [owner]
    options = options_class(verb)
    errors = []
    for name in names:
        nested = getattr(TASKS[name], TASK_OPTIONS[verb])
        try:
            parsed = parse(options, f"regard {verb}", words, sections={"task": nested, "load": LoadOptions})
            nested(**parsed.task)
        except ValueError as error:
            errors.append(f"{name}: {error}")
        else:
            return
    pytest.fail("\n".join(errors))


@for_each(("command", "page"), COMMANDS)
def test_command_is_understood(command: str, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("msgspec")
    from regard.cli.main import TASK_OPTIONS, VERBS, options_class
    from regard.cli.parsing.parser import parse
    from regard.cli.verbs import compare, train
    from regard.tasks.registry import TASKS
    from regard.training.config import TrainingConfig

    program, *words = shlex.split(command, comments=True)
    if program == "torchrun":
        # it looks for its own options among all words
        from torch.distributed.run import parse_args

        parsed = parse_args(words)
        assert parsed.module
        assert parsed.training_script == "regard"
        words = parsed.training_script_args
    verb, *words = words
    assert verb in VERBS
    if verb in TASK_OPTIONS:
        parse_with_run(verb, words, page)
    elif "--resume" in words:
        parse(train.ResumeOptions, "regard train", words, sections={"training": TrainingConfig})
    elif verb == "compare":
        monkeypatch.setattr(compare, "check_paths_exist", lambda config: config)
        compare.split_variants(TASKS[words[0]], words[1:])
    elif verb == "train":
        name, *words = words
        sections = {"task": TASKS[name], "training": TrainingConfig}
        TASKS[name](**parse(train.TrainOptions, f"regard train {name}", words, sections=sections).task)
    else:
        parse(options_class(verb), f"regard {verb}", words)


def test_commands_are_found() -> None:
    commands = shown(ROOT / "docs/guides/translate.md")
    assert any(command.startswith("regard train translate") for command in commands)
    assert any(command.startswith("torchrun") for command in commands)
