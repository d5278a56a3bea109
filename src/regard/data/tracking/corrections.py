"""CORRECTIONS: labels that published dialogues spell in several ways, and the spelling of the ontology.  No torch here.

WoZ 2.0 has 4 labels outside of its ontology in 5,012 turns; MultiWOZ has several spellings of dontcare.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

# per layout of a file: the label in the file, and the label that is read instead. Capitals and spaces around a label
# are dropped first
CORRECTIONS: dict[Literal["woz", "multiwoz"], dict[str, str]] = {
    "woz": {
        "center": "centre",
        "east side": "east",
        "north side": "north",
        "south side": "south",
        "west side": "west",
        "corsican": "corsica",
        "moderately priced": "moderate",
        "phone number": "phone",
        "number": "phone",
        "don't care": "dontcare",
    },
    "multiwoz": {
        "center": "centre",
        "city centre": "centre",
        "moderately priced": "moderate",
        "dont care": "dontcare",
        "don't care": "dontcare",
        "do n't care": "dontcare",
        "do not care": "dontcare",
        "does not care": "dontcare",
    },
}


class LabelCorrector:
    """Labels of a file in the spelling of the ontology; counts those that it changes."""

    def __init__(self, layout: Literal["woz", "multiwoz"]) -> None:
        self.corrections = CORRECTIONS[layout]
        self.counts: Counter[str] = Counter()

    def correct(self, label: str) -> str:
        plain = " ".join(label.split()).lower()
        right = self.corrections.get(plain, plain)
        if right != label:
            self.counts[f"{label!r} → {right!r}"] += 1
        return right

    def values(self, labels: Iterable[str]) -> tuple[str, ...]:
        """The different values of a slot in an ontology, in their order, without dontcare, which every slot has."""
        return tuple(value for value in dict.fromkeys(map(self.correct, labels)) if value != "dontcare")
