"""Values and slots that the words of a turn name, found by comparing words.  No torch here."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from regard.data.text.words import split_words
from regard.data.tracking.corrections import CORRECTIONS
from regard.data.tracking.dialogue import Ontology, State, SystemAct

# words of the map of corrections that a value is also found by
_SPELLINGS = {wrong: right for layout in CORRECTIONS.values() for wrong, right in layout.items()}


class Mention(NamedTuple):
    """A value of a slot, or a request, and the places of its words."""

    slot: str
    value: str
    start: int
    end: int


class MentionFinder:
    """Finds the values and requests of an ontology in words, the longest first where several begin at one word."""

    def __init__(self, ontology: Ontology) -> None:
        self.of_values = _Phrases(
            (phrase, (slot, value))
            for slot, values in ontology.slots.items()
            for value in values
            for phrase in _spellings(value)
        )
        self.of_requests = _Phrases(
            (phrase, (request, ""))
            for request in ontology.requests
            for phrase in _spellings(request.rpartition("-")[2])
        )

    def values(self, text: str) -> list[Mention]:
        """The values that a text names, in the order of their words."""
        return self.of_values.find(split_words(text)[0])

    def requests(self, text: str) -> list[Mention]:
        """The requests that a text names, in the order of their words."""
        return self.of_requests.find(split_words(text)[0])

    def acts(self, text: str) -> tuple[SystemAct, ...]:
        """The acts of the system that can be found in its words: the values that it names."""
        return tuple(dict.fromkeys(SystemAct(each.slot, each.value) for each in self.values(text)))

    def informs(self, text: str) -> State:
        """String matching: every value that the user names, the last one of a slot."""
        return {each.slot: each.value for each in self.values(text)}


class _Phrases:
    """Phrases of words, each with the slots and values that it names."""

    def __init__(self, phrases: Iterable[tuple[Sequence[str], tuple[str, str]]]) -> None:
        self.named: dict[tuple[str, ...], list[tuple[str, str]]] = {}
        for words, name in phrases:
            self.named.setdefault(tuple(words), []).append(name)
        self.longest = max(map(len, self.named), default=0)

    def find(self, words: Sequence[str]) -> list[Mention]:
        words = [word.lower() for word in words]
        found: list[Mention] = []
        start = 0
        while start < len(words):
            end = min(start + self.longest, len(words))
            while end > start and tuple(words[start:end]) not in self.named:
                end -= 1
            found += [Mention(*name, start, end) for name in self.named.get(tuple(words[start:end]), ())]
            start = max(end, start + 1)
        return found


def _spellings(value: str) -> list[tuple[str, ...]]:
    """The words of a value, and those of its other spellings."""
    texts = [value, *(wrong for wrong, right in _SPELLINGS.items() if right == value)]
    return [words for text in texts if (words := tuple(word.lower() for word in split_words(text)[0]))]
