"""Attacks on translators: a word must appear in the translation, or must not."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attacks.text.target_words import OutputWord
from regard.common.word_splitting import split_words
from regard.data.text.text_tokenizer import TextTokenizer


@dataclass(frozen=True)
class TranslationTarget:
    """A word that an attack leads to or away from, its first token, and the translation of the clean text."""

    word: OutputWord
    token: int
    clean: tuple[int, ...]  # with the end of the sentence

    def loss(self, logits: Tensor) -> Tensor:  # "b t v" -> "b"
        """The margin of the word's first token along the clean translation, positive where a step would change.

        A word to appear needs the best step of all; one to vanish every step where it stands, or if it is written with
        other tokens every step.
        """
        others = logits.scatter(-1, logits.new_full((*logits.shape[:-1], 1), self.token, dtype=torch.long), -torch.inf)
        margins = logits[..., self.token] - others.amax(-1)  # "b t"
        if self.word.appears:
            return margins.amax(1)
        steps = [t for t, token in enumerate(self.clean) if token == self.token] or list(range(len(self.clean)))
        return -margins[:, steps].amax(1)

    def is_wrong(self, translation: str) -> bool:
        """Whether the attack has what it wants."""
        return self.word.appears == has_word(translation, self.word.word)


def has_word(text: str, word: str) -> bool:
    """Whether a text has the word, alone or beside punctuation."""
    return word in text.split() or word in split_words(text)[0]


def first_token(word: OutputWord, tokenizer: TextTokenizer) -> int:
    """The first token of a word; raises if the vocabulary of translations cannot write the word."""
    (ids,) = tokenizer.encode([word.word])
    if not ids or (tokenizer.special.unk is not None and tokenizer.special.unk in ids):
        pieces = [piece.lstrip("▁") for piece in tokenizer.pieces(range(len(tokenizer)))]
        near = difflib.get_close_matches(word.word, pieces, n=1, cutoff=0.6)
        way = f"did you mean {near[0]!r}?" if near else "name a word of the training targets"
        raise ValueError(f"the word {word.word!r} is not in the vocabulary of translations, so none can have it; {way}")
    return ids[0]


def check_words(targets: Sequence[object] | None) -> Sequence[OutputWord]:
    """The targets; raises if they are no words."""
    if targets is None or not all(isinstance(target, OutputWord) for target in targets):
        raise TypeError(
            "targets of a translator must be words that must or must not appear, one per text, got "
            f"{targets!r:.60}; write [regard.attacks.TargetWord('Haus')] or [regard.attacks.ForbiddenWord('Haus')]"
        )
    return targets  # type: ignore[return-value]
