"""The lines of text that a command is given: words, a file, a pipe, or a prompt."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from regard.cli.output import note

# lines of a file that are predicted together, the short with the short
_CHUNK = 1024


def input_lines(words: Sequence[str], file: Path | None, *, split_words: bool = True) -> Iterator[list[str]]:
    """The lines, in chunks that are predicted together; a word or file "-" is stdin, which is also read without any.

    A word with line breaks is several lines if `split_words`.
    """
    if file is not None and str(file) == "-":
        yield from piped_lines()
    elif file is not None:
        from regard.data.text.pairs import read_lines

        yield from in_chunks(read_lines(file))
    elif words and list(words) != ["-"]:
        yield [line for text in words for line in (text.split("\n") if split_words else [text])]
    elif words or not sys.stdin.isatty():
        yield from piped_lines()
    else:
        yield from _prompted()


def in_chunks(lines: Iterator[str]) -> Iterator[list[str]]:
    """Lines that are predicted together."""
    while chunk := list(islice(lines, _CHUNK)):
        yield chunk


def piped_lines() -> Iterator[list[str]]:
    """Lines of stdin as they arrive: many at once from a file, one by one from someone who types."""
    from regard.data.text.pairs import check_length, decode_line

    number, rest = 0, b""
    while more := sys.stdin.buffer.read1(1 << 16):  # type: ignore[union-attr]
        *lines, rest = (rest + more).split(b"\n")
        if lines:
            yield [decode_line(line, "stdin", number + n) for n, line in enumerate(lines, 1)]
        number += len(lines)
        check_length(rest, "stdin", number + 1)
    if rest:
        yield [decode_line(rest, "stdin", number + 1)]


def _prompted() -> Iterator[list[str]]:
    """Lines typed at a prompt, until Ctrl-D."""
    note("type a line, Ctrl-D to end")
    while True:
        try:
            yield [prompted_line("> ")]
        except EOFError:
            print(file=sys.stderr)
            return


def prompted_line(prompt: str) -> str:
    """A line that is typed behind the prompt, which stands on stderr if stdout is no terminal."""
    if sys.stdout.isatty():
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  input() can be edited once it is there
        return input(prompt)
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\r\n")
