"""The columns of a file of labelled pairs of texts.  No torch here: a command line reads them."""

from typing import NamedTuple

# the names of columns and keys that are recognised: of the first text, of the second, and of the label
KNOWN_COLUMNS = (
    ("sentence1", "sentence_a", "premise", "question1", "text1", "#1 string", "first"),
    ("sentence2", "sentence_b", "hypothesis", "question2", "text2", "#2 string", "second"),
    ("gold_label", "label", "entailment_judgment", "entailment_label", "is_duplicate", "quality"),
)


class Columns(NamedTuple):
    """The first text, the second text and the label: names of columns or keys, or numbers of columns from 1."""

    first: str
    second: str
    label: str

    @staticmethod
    def parse(text: str) -> "Columns":
        """The three columns of "A,B,LABEL"."""
        parts = [part.strip() for part in text.split(",")]
        if len(parts) != 3 or not all(parts):
            raise ValueError(
                f"columns must be three names or numbers, of the first text, the second and the label, got {text!r}; "
                "try columns=sentence1,sentence2,gold_label"
            )
        return Columns(*parts)
