"""Checks of tokenizers of the library `tokenizers`: their files are programs that may fail on a text, or inflate it."""

from collections.abc import Iterator
from typing import Any

# the problem and the way out, of a tokenizer that panics
TEXT_FAILURE = ("the tokenizer fails on this text", "give another text, or restore tokenizer.json")
# characters in place of one
_MOST_GROWTH = 1000


def check_growth(tokenizer: Any, name: str) -> None:
    """Raises if the replacements of a tokenizer, as JSON, could make thousands of characters of each one."""
    parts = tokenizer if isinstance(tokenizer, dict) else {}
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        growth = 1
        for content in _replacements(parts.get(part)):
            growth *= max(len(content), 1)
        if growth > _MOST_GROWTH:
            raise ValueError(
                f"the {part} of {name} makes up to {growth:,} characters of one, and {_MOST_GROWTH:,} are read; "
                "restore the file"
            )


def _replacements(part: Any) -> Iterator[str]:
    """The texts that the steps of a part put in the place of others."""
    if isinstance(part, dict):
        content = part.get("content")
        if part.get("type") == "Replace" and isinstance(content, str):
            yield content
        for steps in part.values():
            if isinstance(steps, list):
                for step in steps:
                    yield from _replacements(step)
