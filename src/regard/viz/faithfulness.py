"""One HTML file of the faithfulness of attributions: tinted texts, agreement, deletion curves, and a verdict."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from regard.common import atomic_files
from regard.viz.html import page
from regard.viz.text import labels


@dataclass(frozen=True)
class MethodRow:
    """One method: the score of every token; None where removal was not measured."""

    name: str
    scores: tuple[float, ...]
    comprehensiveness: float | None = None
    sufficiency: float | None = None
    curve: tuple[float, ...] = ()


@dataclass(frozen=True)
class FaithfulnessPage:
    """The content of a page."""

    title: str
    verdict: str
    tokens: tuple[str, ...]
    rows: tuple[MethodRow, ...]
    removed: tuple[float, ...]  # the places of the curves, shares of the words
    random: MethodRow  # random orders, without scores
    band: tuple[tuple[float, ...], tuple[float, ...]]
    agreement: tuple[tuple[float, ...], ...]  # τ of the measured rows; empty for a text of one word
    removal: str
    notes: tuple[str, ...]
    unit: str = "word"  # what is removed
    units: str = "words"
    grid: tuple[int, int] | None = None  # rows and columns of the patches of a picture, the last tokens
    image: str | None = None  # the picture, as the address of a PNG


def write_page(content: FaithfulnessPage, path: Path) -> Path:
    """Writes the page, which needs no network and no other file."""
    shown = {token: label for token in content.tokens if (label := labels.visible_label(token)) != token}
    document = page.view_document(
        content.title, "html/faithfulness", {**asdict(content), "shown": shown}, _plain_text(content)
    )
    atomic_files.write_atomically(path, [document.encode()])
    return path


def _plain_text(content: FaithfulnessPage) -> str:
    """For readers without scripts."""
    width = max(len(row.name) for row in (*content.rows, content.random))
    lines = [content.title, content.verdict, "", f"{'':{width}}  comprehensiveness  sufficiency"]
    for row in (*content.rows, content.random):
        if row.comprehensiveness is not None:
            lines.append(f"{row.name:{width}}  {row.comprehensiveness:17.3f}  {row.sufficiency:11.3f}")
    lines += ["", *(f"{row.name:{width}}  {_scores(content.tokens, row.scores)}" for row in content.rows)]
    return "\n".join([*lines, "", *content.notes])


def _scores(tokens: Sequence[str], scores: Sequence[float]) -> str:
    return ", ".join(f"{token} {score:.3g}" for token, score in zip(tokens, scores, strict=True))
