"""Error rates of transcripts: edits per hundred characters, or words, of the references."""

from collections.abc import Callable, Sequence

from regard.metrics.text import distance


def cer(predictions: Sequence[str], references: Sequence[str]) -> float:
    """Insertions, deletions and replacements per hundred characters of the references, spaces included."""
    return _error_rate(predictions, references, list)


def wer(predictions: Sequence[str], references: Sequence[str]) -> float:
    """Insertions, deletions and replacements per hundred words of the references."""
    return _error_rate(predictions, references, str.split)


def _error_rate(predictions: Sequence[str], references: Sequence[str], cut: Callable[[str], Sequence[str]]) -> float:
    edits = sum(distance(cut(line), cut(right)) for line, right in zip(predictions, references, strict=True))
    length = sum(len(cut(right)) for right in references)
    return 100.0 * edits / length if length else 0.0
