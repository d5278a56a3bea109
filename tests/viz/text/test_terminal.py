"""Weights as text: every cell in its column, every look in words, nothing that steers the terminal."""

import re

import pytest
import torch
from hypothesis import given, strategies as st

from regard.viz.text import labels, terminal

PIECE = st.text(st.characters(exclude_categories=()), max_size=6)


def weights(rows: int, columns: int) -> torch.Tensor:
    return torch.softmax(3 * torch.randn(rows, columns, generator=torch.Generator().manual_seed(3)), -1)


def test_a_small_map_is_this() -> None:
    said = terminal.heatmap(
        torch.tensor([[0.0, 0.13, 0.87], [1.0, 0.0, 0.0]]), ["04", "-"], ["4", "月", "April"], width=80
    )
    assert said.split("\n") == [
        "       A",
        "       p",
        "       r",
        "       i",
        "   4 月l",
        "04 · ▁▁▇▇ 'April' 0.87",
        " - ██· ·  '4' 1.00",
    ]


@given(st.lists(PIECE, min_size=1, max_size=5), st.lists(PIECE, min_size=1, max_size=7))
def test_every_row_of_cells_starts_in_one_column(rows: list[str], columns: list[str]) -> None:
    said = terminal.heatmap(torch.zeros(len(rows), len(columns)), rows, columns, width=80).split("\n")
    cells = "· " * len(columns)
    starts = {labels.display_width(line[: line.rindex(cells)]) for line in said[-len(rows) :]}
    assert len(starts) == 1
    assert all(labels.display_width(line) <= starts.copy().pop() + 2 * len(columns) for line in said[: -len(rows)])
    assert "\x1b" not in "".join(said)


@pytest.mark.parametrize(("weight", "block"), [(0.0, "· "), (0.06, "· "), (0.125, "▁▁"), (0.5, "▄▄"), (1.0, "██")])
def test_a_block_is_as_high_as_its_weight(weight: float, block: str) -> None:
    assert terminal.heatmap(torch.tensor([[weight]]), ["a"], ["b"]).split("\n")[1].startswith(f"a {block}".rstrip())


def test_colours_are_those_of_cividis() -> None:
    from matplotlib import colormaps

    for weight in (0.0, 0.3, 0.5, 0.77, 1.0):
        line = terminal.heatmap(torch.tensor([[weight]]), ["a"], ["b"], colour=True).split("\n")[1]
        found = re.search(r"\x1b\[48;2;(\d+);(\d+);(\d+)m  \x1b\[0m", line)
        assert found
        wanted = [255 * part for part in colormaps["cividis"](weight)[:3]]
        assert [int(part) for part in found.groups()] == pytest.approx(wanted, abs=6)


def test_letters_of_neighbouring_columns_do_not_run_together() -> None:
    """A terminal that knows Arabic would turn the row of labels around."""
    header = terminal.heatmap(torch.zeros(1, 3), ["a"], list("مرت")).split("\n")[0]
    assert header == "  م\u200e ر\u200e ت\u200e"


def test_a_long_label_is_cut() -> None:
    said = terminal.heatmap(torch.ones(1, 1), ["r" * 40], ["c" * 40], width=200).split("\n")
    assert len(said) == 13
    assert said[11].strip() == "⋮"
    assert said[12].startswith("r" * 7 + "…" + "r" * 16 + " ██")


def test_a_map_too_wide_is_told_in_words() -> None:
    cells = torch.zeros(2, 500)
    cells[0, 17], cells[0, 300], cells[0, 8], cells[0, 9] = 0.5, 0.3, 0.15, 0.05
    said = terminal.heatmap(cells, ["a", "月"], [f"w{n}" for n in range(500)]).split("\n")
    assert said == [
        "500 columns are too many for 100 characters; greatest weights:",
        " a 'w17' 0.50, 'w300' 0.30, 'w8' 0.15",
        "月 nothing",
    ]


def test_words_are_left_out_before_a_line_is_torn() -> None:
    said = terminal.heatmap(weights(3, 20), list("abc"), ["word"] * 20, width=45)
    assert "word" not in said.split("\n")[-1]
    assert all(labels.display_width(line) <= 45 for line in said.split("\n"))


def test_nothing_to_draw_is_said() -> None:
    assert terminal.heatmap(torch.zeros(0, 2), [], ["a", "b"]) == "nothing to show: there are no rows"
    assert terminal.heatmap(torch.zeros(2, 0), ["a", "b"], []) == "nothing to show: there are no columns"
