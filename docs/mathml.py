"""Formulas of the documentation as MathML, made when the site is built: a hook of mkdocs, no script in the pages.

A block ```math has one formula in LaTeX per line, with a name before it and a remark behind it if they help:

    additive | s_{ij} = v \\cdot \\tanh(W q_i + U k_j) % Bahdanau, Cho and Bengio 2015
"""

import html
import re
from typing import Any

from latex2mathml.converter import convert

_BLOCK = re.compile(r"^```math\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for the source of every page."""
    return _BLOCK.sub(lambda block: _formulas(block[1]), markdown)


def _formulas(lines: str) -> str:
    rows = "".join(map(_row, lines.splitlines()))
    return f'<div class="formulas" tabindex="0" role="group" aria-label="formulas">{rows}</div>'


def _row(line: str) -> str:
    formula, _, remark = line.partition(" % ")
    name, bar, formula = formula.rpartition(" | ")
    named = f"<code>{html.escape(name.strip())}</code>" if bar else ""
    return f"<div>{named}{convert(formula.strip())}<small>{html.escape(remark.strip())}</small></div>"
