"""Small data and small models for the tests of classify-text."""

from pathlib import Path
from typing import Any

from regard.tasks.classify_text.options import ClassifyText
from regard.tasks.classify_text.task import ClassifyTextProblem

WORDS = {"good": ("fine", "great", "lovely"), "bad": ("poor", "dull", "awful"), "so-so": ("fair", "usual", "plain")}
# sizes without a common factor
SMALL: dict[str, dict[str, Any]] = {
    "self-attentive": {"width": 5, "hidden": 7, "hops": 2, "attention_hidden": 3, "feed": 11, "dropout": 0.0},
    "hierarchical": {"width": 5, "hidden": 7, "dropout": 0.0},
    "bag-of-words": {"bigrams": 13},
}


def lines() -> list[str]:
    """Labelled texts of one or two sentences: the last word decides."""
    starts = ("A film that is", "It rained. The play was", "We found the song")
    return [f"{label}\t{start} {word}." for start in starts for label, words in WORDS.items() for word in words]


def files(folder: Path) -> dict[str, Any]:
    """Options of a task on small files."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [line + "\n" for line in lines()]
    (folder / "train.txt").write_text("".join(rows), encoding="utf-8")
    (folder / "valid.txt").write_text("".join(rows[1::4]), encoding="utf-8")
    paths = {"train": folder / "train.txt", "valid": folder / "valid.txt"}
    return {**paths, "batch": 30, "word_dropout": 0.0, "tokens": "words"}


def config(folder: Path, model: str = "self-attentive", **options: Any) -> ClassifyText:
    return ClassifyText.of(**{**files(folder / "data"), "model": model, **SMALL[model], **options})


def prepared(folder: Path, model: str = "self-attentive", **options: Any) -> ClassifyTextProblem:
    return config(folder, model, **options).load().prepare(folder, new=True)
