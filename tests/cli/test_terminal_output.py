"""Control characters of labels, samples, names and errors: escaped on a terminal, as they are in a pipe."""

import io
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Regard
from tests.cli.pseudo_terminal import typed

from regard.cli import terminal_output
from regard.cli.main import main, print_error
from regard.cli.output import note
from regard.cli.progress import Bar, example_progress, setup_notice

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \x9b1m \u202eback\rover"
ESCAPED = "U+001B[31mredU+001B]0;titleU+0007 U+009B1m U+202EbackU+000Dover"


def on_terminal(monkeypatch: pytest.MonkeyPatch, *args: object) -> str:
    return typed(monkeypatch, [], lambda: main([str(word) for word in args]))


def has_controls(shown: str) -> bool:
    return any(control in shown for control in ("\x1b[31m", "\x1b]0;", "\x07", "\x9b", "\u202e", "\r"))


def test_an_error_names_a_path(monkeypatch: pytest.MonkeyPatch, regard: Regard) -> None:
    shown = on_terminal(monkeypatch, "predict", f"no{HOSTILE}", "a")
    assert f"no{ESCAPED}" in shown
    assert not has_controls(shown)
    assert f"no{HOSTILE}" in regard("predict", f"no{HOSTILE}", "a").err


def test_a_result_names_its_input(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trained: Path, regard: Regard
) -> None:
    text = "a b\x1b[31m\x9b"
    shown = on_terminal(monkeypatch, "translate", trained, "--json", text)
    assert "\x9b" not in shown
    assert "U+009B" in shown
    assert "\x9b" in regard("translate", trained, "--json", text).out


def test_the_traceback_of_a_debugged_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def act() -> None:
        with pytest.raises(FileNotFoundError, match="there is no run"):
            main(["predict", f"no{HOSTILE}", "a", "--debug"])
        # an exception that leaves main() is printed by Python
        sys.stderr.write(f"ValueError: {HOSTILE}\n")

    assert typed(monkeypatch, [], act) == f"ValueError: {ESCAPED}\n"


def test_lines_beside_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    def act() -> None:
        terminal_output.escape_terminals()
        with Bar(sys.stdout) as shown:
            shown.print_line(f"line {HOSTILE}")
            note(f"note {HOSTILE}")
            print(f"print {HOSTILE}")
        with example_progress("example", sys.stderr):
            print_error(f"error {HOSTILE}")
        with setup_notice(sys.stdout):
            print(f"after {HOSTILE}")

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    shown = typed(monkeypatch, [], act)
    for name in ("line", "note", "print", "error", "after"):
        assert f"{name} {ESCAPED}" in shown
    # the sequences of the bar itself are there
    assert "\x1b[?25l" in shown
    assert not any(control in shown for control in ("\x1b[31mred", "\x1b]0;", "\x07", "\x9b", "\u202e"))


def test_colours_of_a_picture_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def act() -> None:
        terminal_output.escape_terminals()
        terminal_output.write_styled("\x1b[48;2;0;34;78m  \x1b[0m \x1b]0;title\x07\n")

    assert typed(monkeypatch, [], act) == "\x1b[48;2;0;34;78m  \x1b[0m U+001B]0;titleU+0007\n"


def test_pipes_receive_every_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    terminal_output.escape_terminals()
    assert sys.stdout is out
    terminal_output.write_styled(HOSTILE)
    assert out.getvalue() == HOSTILE


def test_a_terminal_has_the_interface_of_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    def act() -> None:
        terminal_output.escape_terminals()
        terminal_output.escape_terminals()  # a second time changes nothing
        assert sys.stdout.isatty()
        assert sys.stdout.encoding == "utf-8"
        assert isinstance(sys.stdout, terminal_output.EscapedTerminal)
        assert not isinstance(sys.stdout.unfiltered, terminal_output.EscapedTerminal)
        assert sys.stdout.write("\x1b") == 1
        sys.stdout.writelines(["a\x07", "\n"])

    assert typed(monkeypatch, [], act) == "U+001BaU+0007\n"
