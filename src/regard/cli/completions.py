"""Words that may come next in a command, for the completion of shells.  No torch here."""

import contextlib
from collections.abc import Sequence

from regard.cli.main import VERBS, options_class, typed_options
from regard.cli.parsing.option import Option, options_of

_COMMON = ("--help", "--debug", "--trust-module")
SHELLS = ("bash", "zsh")


def completions(words: Sequence[str], current: str) -> list[str]:
    """The words that begin as `current`, behind these `words` of a command; none where a file or a text is typed."""
    return sorted({each for each in _candidates(words, current) if each.startswith(current)})


def _candidates(words: Sequence[str], current: str) -> Sequence[str]:
    if not words:
        return [*VERBS, "--help", "--version"]
    verb, *typed = words
    if verb not in VERBS or "--" in typed:
        return ()
    if verb in ("train", "compare") and not typed and not current.startswith("-"):
        from regard.tasks.registry import TASKS

        return list(TASKS)
    table = _options(verb, typed)
    if current.startswith("-"):
        return [*_COMMON, *(option.flag for option in table if not option.positional)]
    if typed and typed[-1].startswith("--"):
        return next((option.choices for option in table if option.flag == typed[-1]), ())
    places = [option for option in table if option.positional]
    return places[0].choices if places and not typed else ()


def _options(verb: str, typed: Sequence[str]) -> list[Option]:
    """The options of a verb, and of the task that is typed, or that the run that is typed has."""
    sections = {str(n): each for n, each in enumerate(typed_options(verb, typed)) if each is not options_class(verb)}
    with contextlib.suppress(ValueError, OSError):  # a damaged run has no options to offer
        return options_of(options_class(verb), sections)
    return options_of(options_class(verb), {})


def script(shell: str) -> str:
    """The lines that a shell reads at its start: eval "$(regard completion bash)"."""
    return _BASH if shell == "bash" else _ZSH


_BASH = """\
_regard() {
    local IFS=$'\\n' current="${COMP_WORDS[COMP_CWORD]}"
    COMPREPLY=($(regard completion words "$current" "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null))
}
complete -o default -F _regard regard
"""
_ZSH = """\
#compdef regard
_regard() {
    local -a found
    found=("${(@f)$(regard completion words "${words[CURRENT]}" "${(@)words[2,CURRENT-1]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then compadd -a found; else _files; fi
}
if [[ "$funcstack[1]" == _regard ]]; then _regard; else compdef _regard regard; fi
"""
