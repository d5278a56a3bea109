"""Values and slots that the words of a turn name, found by comparing words.  No torch here."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from regard.common.word_splitting import split_words
from regard.data.tracking.corrections import CORRECTIONS
from regard.data.tracking.dialogue import Ontology, State, SystemAct

# words of the map of corrections that a value is also found by
_SPELLINGS = {wrong: right for layout in CORRECTIONS.values() for wrong, right in layout.items()}


# letters that a word has before an ending, and letters of an ending, at most
_STEM, _ENDING = 4, 5


class Mention(NamedTuple):
    """A value of a slot, or a slot or request by its name without a value, and the places of its words."""

    slot: str
    value: str
    start: int
    end: int


class MentionFinder:
    """Finds the values and names of an ontology in words, the longest first where several begin at one word.

    The last word may have an ending: "cheapest" names cheap, "northern" north.
    """

    def __init__(self, ontology: Ontology) -> None:
        self.of_values = _Phrases(
            (phrase, (slot, value))
            for slot, values in ontology.slots.items()
            for value in values
            for phrase in _spellings(value)
        )
        # the domain in front of a name, as in hotel-area, is seldom said
        self.of_names = _Phrases(
            (phrase, (name, ""))
            for name in dict.fromkeys((*ontology.slots, *ontology.requests))
            for phrase in _spellings(name.rpartition("-")[2])
        )

    def values(self, text: str) -> list[Mention]:
        """The values that a text names, in the order of their words."""
        return self.of_values.find(split_words(text)[0])

    def names(self, text: str) -> list[Mention]:
        """The slots and requests that a text names, in the order of their words."""
        return self.of_names.find(split_words(text)[0])

    def acts(self, text: str) -> dict[SystemAct, Mention]:
        """The acts of the system that can be found in its words, the values and slots that it names, with the first
        mention of each."""
        mentions: dict[SystemAct, Mention] = {}
        for mention in sorted((*self.values(text), *self.names(text)), key=lambda each: each.start):
            mentions.setdefault(SystemAct(mention.slot, mention.value), mention)
        return mentions

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
        mentions: list[Mention] = []
        start = 0
        while start < len(words):
            end, names = self._longest(words, start)
            mentions += [Mention(*name, start, end) for name in names]
            start = max(end, start + 1)
        return mentions

    def _longest(self, words: Sequence[str], start: int) -> tuple[int, Sequence[tuple[str, str]]]:
        """The end of the longest phrase that begins at a word, and its names; none is as long as no word."""
        for end in range(min(start + self.longest, len(words)), start, -1):
            *front, last = words[start:end]
            stems = (last[:length] for length in range(len(last) - 1, max(len(last) - _ENDING, _STEM) - 1, -1))
            for stem in (last, *stems):
                if (names := self.named.get((*front, stem))) is not None:
                    return end, names
        return start, ()


def _spellings(value: str) -> list[tuple[str, ...]]:
    """The words of a value, and those of its other spellings."""
    texts = [value, *(wrong for wrong, right in _SPELLINGS.items() if right == value)]
    return [words for text in texts if (words := tuple(word.lower() for word in split_words(text)[0]))]
