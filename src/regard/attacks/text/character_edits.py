"""CharacterEdits: misspells words by inserted, deleted, swapped and substituted letters, without gradients."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any, ClassVar

from regard.attacks.text.base import AttackedText, TextAttack, check_not_negative
from regard.attacks.text.search import LossOf, search_edits
from regard.attacks.text.victim import TextVictim
from regard.common import checks
from regard.common.word_splitting import split_words
from regard.inference.edited_text import EditedText

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
# words that are misspelled further, those where one edit raised the loss most
_WORDS = 4


@dataclass(frozen=True)
class CharacterEdits(TextAttack):
    """Up to `edits` letters of a text inserted, deleted, substituted, or swapped with the next.

    A misspelled word is other tokens, often an unknown one, to which no gradient with respect to the old tokens leads;
    so the search asks for scores alone. A step makes one random edit in every word, and `k` more, in turn in the four
    words where the loss rose most; the `beam` best texts go on.
    """

    chooses_tokens: ClassVar[bool] = False

    edits: int = 2
    k: int = 64
    beam: int = 5

    def __post_init__(self) -> None:
        check_not_negative(self, "edits", self.edits)
        checks.positive_ints("CharacterEdits", k=self.k, beam=self.beam)

    def run(
        self, victim: TextVictim, texts: Sequence[str], targets: Sequence[Any], seed: int, first: int
    ) -> list[AttackedText]:
        attacked = []
        for n, (text, target) in enumerate(zip(texts, targets, strict=True), first):

            def misspell(state: EditedText, losses: LossOf, n: int = n) -> Iterator[EditedText]:
                # seeded by the text as well, so that the states of a beam do not depend on each other
                return self._edits(state, losses, random.Random(f"{seed} {n} {state.text}"))

            attacked.append(search_edits(victim, text, target, self.edits, self.beam, misspell))
        return attacked

    def _edits(self, state: EditedText, losses: LossOf, rng: random.Random) -> Iterator[EditedText]:
        by_word = [[*_edits_of(state, *span)] for span in _word_spans(state.text)]
        for edits in by_word:
            rng.shuffle(edits)
        probes = [edits[0] for edits in by_word if edits]
        raised = losses(probes) if probes else []
        order = sorted(range(len(probes)), key=lambda n: -raised[n])[:_WORDS]
        filled = [edits for edits in by_word if edits]
        yield from probes
        in_turn = zip_longest(*(filled[n][1:] for n in order))
        yield from islice((each for row in in_turn for each in row if each is not None), self.k)


def _word_spans(text: str) -> list[tuple[int, int]]:
    """The places of words: letters and digits, a letter at least."""
    return [span for word, span in zip(*split_words(text, "alphanumeric"), strict=True) if any(map(str.isalpha, word))]


def _edits_of(state: EditedText, start: int, end: int) -> Iterator[EditedText]:
    """The text with one edit in a word, each once."""
    word = state.text[start:end]
    spellings = {word[:i] + letter + word[i:] for i in range(len(word) + 1) for letter in _LETTERS}
    for i in range(len(word)):
        spellings |= {word[:i] + letter + word[i + 1 :] for letter in _LETTERS}
        spellings.add(word[:i] + word[i + 1 :])
        spellings.add(word[:i] + word[i + 1 : i + 2] + word[i] + word[i + 2 :])
    for spelling in sorted(spellings - {word, ""}):
        yield state.replace(start, end, spelling)
