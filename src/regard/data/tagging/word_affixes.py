"""The words of running text, split as a file of words splits them.

alone(a) ≥ attached(a)          a mark or clitic is split off at an end of words if it is a word of its own as often
                                as it stands at this end of longer words: "." in "Paris .", "'s" in "Anna 's"
alone(a) ≥ 100 (inside(a) + 1)  a mark that next to no word has inside parts words: "-" in "glucose - 6"
whole(w) ≥ apart(w)             a word that stands there whole as often as its parts in a row stays whole: "U.S."
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from regard.common.word_splitting import split_words
from regard.common.wording import plural
from regard.data.text.words import normal

# marks without letters and digits, and clitics: English 's and n't at the end of words, French l' at their start
_SIGNS = re.compile(r"[^\w\s]+")
_ENCLITIC = re.compile(r"['’]\w+|n['’]t", re.IGNORECASE)
_PROCLITIC = re.compile(r"\w+['’]")
# the characters of the longest affix
_LONGEST = 8
# a mark separates words if it is a word of its own this many times as often as it stands inside of words
_PARTING = 100
# affixes that a sentence lists
_SHOWN = 12


@dataclass(frozen=True)
class WordAffixes:
    """Marks and clitics that are split off at the start, at the end or inside of words, and words that stay whole."""

    leading: tuple[str, ...] = ()
    trailing: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()  # in lower case, every digit 0

    @staticmethod
    def of(sentences: Sequence[Sequence[str]]) -> "WordAffixes":
        """The affixes of a file of words."""
        counts = Counter(normal(word) for sentence in sentences for word in sentence)
        starts, ends, interior = Counter[str](), Counter[str](), Counter[str]()
        for word, count in counts.items():
            for length in range(1, min(len(word), _LONGEST + 1)):
                starts[word[:length]] += count
                ends[word[-length:]] += count
            for sign in set(_SIGNS.findall(word[1:-1])):
                interior[sign] += count

        def affixes(clitic: re.Pattern[str], attached: Counter[str]) -> tuple[str, ...]:
            candidates = [a for a in counts if len(a) <= _LONGEST and (_SIGNS.fullmatch(a) or clitic.fullmatch(a))]
            return tuple(sorted((a for a in candidates if counts[a] >= attached[a]), key=lambda a: (-len(a), a)))

        leading, trailing = affixes(_PROCLITIC, starts), affixes(_ENCLITIC, ends)
        signs = [a for a in counts if len(a) <= _LONGEST and _SIGNS.fullmatch(a)]
        inside = tuple(sorted(a for a in signs if counts[a] >= _PARTING * (interior[a] + 1)))
        rules = WordAffixes(leading, trailing, inside)
        parts = {word: split for word in counts if len(split := rules._parts(word)) > 1}
        apart = _count_runs(sentences, set(parts.values()))
        return replace(rules, whole=tuple(sorted(w for w, split in parts.items() if counts[w] >= apart[split])))

    def split(self, text: str) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
        """The words of a text and their places in it."""
        words: list[str] = []
        spans: list[tuple[int, int]] = []
        for chunk, (start, _) in zip(*split_words(text, "spaces"), strict=True):
            for part in self._parts(chunk):
                words.append(part)
                spans.append((start, start + len(part)))
                start += len(part)
        return tuple(words), tuple(spans)

    def __str__(self) -> str:
        """The rules as the rest of a sentence: "at spaces, and . , are split off, …"."""
        affixes = list(dict.fromkeys([*self.leading, *self.trailing, *self.inside]))
        if not affixes:
            return "at spaces"
        shown = " ".join(affixes[:_SHOWN]) + (f" and {len(affixes) - _SHOWN} more" if len(affixes) > _SHOWN else "")
        text = f"at spaces, and {shown} {'are' if len(affixes) > 1 else 'is'} split off words"
        if self.inside:
            text += f", {' '.join(self.inside[:_SHOWN])} also inside of them"
        if self.whole:
            text += f", {plural(len(self.whole), 'word')} such as {self.whole[0]} excepted"
        return text

    @cached_property
    def _inside(self) -> re.Pattern[str]:
        marks = "|".join(map(re.escape, sorted(self.inside, key=len, reverse=True)))
        return re.compile(f"{marks}|(?:(?!{marks}).)+")

    @cached_property
    def _whole(self) -> frozenset[str]:
        return frozenset(self.whole)

    def _parts(self, chunk: str) -> tuple[str, ...]:
        """The words of a text without spaces: affixes off either end, the longest first, until a whole word is left."""
        before: list[str] = []
        after: list[str] = []
        while (normalized := normal(chunk)) not in self._whole:
            if len(normalized) != len(chunk):
                break  # a letter whose lower case has two characters: places would shift
            leading = next((a for a in self.leading if len(a) < len(normalized) and normalized.startswith(a)), None)
            trailing = next((a for a in self.trailing if len(a) < len(normalized) and normalized.endswith(a)), None)
            if leading is not None:
                before.append(chunk[: len(leading)])
                chunk = chunk[len(leading) :]
            elif trailing is not None:
                after.append(chunk[-len(trailing) :])
                chunk = chunk[: -len(trailing)]
            else:
                break
        middle = [chunk] if normalized in self._whole or not self.inside else self._inside.findall(chunk)
        return (*before, *middle, *reversed(after))


def _count_runs(sentences: Sequence[Sequence[str]], runs: set[tuple[str, ...]]) -> Counter[tuple[str, ...]]:
    """The number of times that each of these runs of words stands in the sentences."""
    lengths = {len(run) for run in runs}
    counts = Counter[tuple[str, ...]]()
    for sentence in sentences:
        words = tuple(map(normal, sentence))
        for length in lengths:
            counts.update(run for n in range(len(words) - length + 1) if (run := words[n : n + length]) in runs)
    return counts
