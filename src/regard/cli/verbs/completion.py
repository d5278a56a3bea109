"""regard completion: the words of commands for the completion of shells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from regard.cli.parsing.parser import parse
from regard.common.options.fields import positional


@dataclass(frozen=True)
class CompletionOptions:
    """Print the script by which a shell completes verbs, tasks, options and their values.

    For bash, a line of ~/.bashrc: eval "$(regard completion bash)". For zsh, a line of ~/.zshrc behind compinit:
    eval "$(regard completion zsh)"
    """

    shell: Literal["bash", "zsh"] = positional(called="shell")
    """The shell."""


def run(args: Sequence[str]) -> int:
    from regard.cli.completions import completions, script

    if args[:1] == ["words"]:  # asked by the script: the word to complete, and the words before it
        current, words = (args[1] if len(args) > 1 else ""), args[2:]
        for word in completions(words, current):
            print(word)
        return 0
    print(script(parse(CompletionOptions, "regard completion", args).shell), end="")
    return 0
