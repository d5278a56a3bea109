"""Edited texts as a figure: every word, those that were put in dark, those that they replace in frames before them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from regard.viz.plots.tinted_text import TintedParagraph, draw_paragraphs

# the tint of a word that was replaced, beside 1 of the new word
_OLD = 0.15


@dataclass(frozen=True)
class EditedParagraph:
    """A text below its name: its words, each with the word that it replaces; None: it is as it was."""

    name: str
    words: Sequence[tuple[str, str | None]]


def draw_edited_texts(paragraphs: Sequence[EditedParagraph], path: str | Path, title: str) -> Path:
    """Draws the texts into a .png, .svg or .pdf; the same input gives the same bytes."""
    if not paragraphs:
        raise ValueError("paragraphs must hold one edited text at least, got none; use a stronger attack")
    notes = ["orange: a new word; in the frame before it: the word that it replaces"]
    return draw_paragraphs([_tinted(paragraph) for paragraph in paragraphs], path, title, notes)


def _tinted(paragraph: EditedParagraph) -> TintedParagraph:
    tokens: list[str] = []
    weights: list[float] = []
    framed = []
    for word, before in paragraph.words:
        if before:
            framed.append(len(tokens))
            tokens.append(before)
            weights.append(_OLD)
        tokens.append(word)
        weights.append(0.0 if before is None else 1.0)
    return TintedParagraph(paragraph.name, tokens, torch.tensor(weights), framed, signed=True)
