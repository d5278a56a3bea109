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
    """The lines, in chunks that are predicted together; "-" is stdin, which is also read if there are no words.

    A word with line breaks is several lines if `split_words`.
    """
    if file is not None:
        from regard.data.text.pairs import read_lines

        lines = read_lines(file)
        while chunk := list(islice(lines, _CHUNK)):
            yield chunk
    elif words and list(words) != ["-"]:
        yield [line for text in words for line in (text.split("\n") if split_words else [text])]
    elif words or not sys.stdin.isatty():
        yield from _piped()
    else:
        yield from _prompted()


def _piped() -> Iterator[list[str]]:
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
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  input() can be edited once it is there
    note("type a line, Ctrl-D to end")
    while True:
        try:
            yield [input("> ") if sys.stdout.isatty() else _read_line("> ")]
        except EOFError:
            print(file=sys.stderr)
            return


def _read_line(prompt: str) -> str:
    """As input(), with the prompt on stderr: stdout is for outputs alone."""
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\r\n")
