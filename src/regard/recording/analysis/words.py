"""Words: which pieces of a text belong together, and maps from word to word."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attn import checks
from regard.attn.maps.attention_map import AttentionMap
from regard.recording.analysis.derived_maps import DerivedMap


@dataclass(frozen=True)
class Words:
    """`text[w]` is a word, `of[i]` the word of piece i; words are in the order of their first pieces.

    By the marks of a tokenizer: `Words.by_mark(pieces, "wordpiece")`; by what a fast tokenizer of transformers says:
    `Words.by_ids(pieces, encoding.word_ids())`.
    """

    text: tuple[str, ...]
    of: tuple[int, ...]

    def __post_init__(self) -> None:
        seen = sorted(set(self.of))
        if seen != list(range(len(self.text))):
            raise ValueError(
                f"every word must have a piece and every piece a word, got {len(self.text)} words and pieces of "
                f"{seen[:20]}; number the words from 0"
            )

    def __len__(self) -> int:
        return len(self.text)

    @staticmethod
    def by_ids(pieces: Sequence[str], ids: Sequence[int | None]) -> "Words":
        """Neighbouring pieces of one number are a word; None, as special tokens have, stands alone."""
        if len(ids) != len(pieces):
            raise ValueError(f"ids must number {len(pieces)} pieces, got {len(ids)} of them; pass encoding.word_ids()")
        return _grouped(
            [bare(piece) for piece in pieces],
            [n > 0 and ids[n] is not None and ids[n] == ids[n - 1] for n in range(len(ids))],
        )

    @staticmethod
    def by_mark(pieces: Sequence[str], mark: str | None = None) -> "Words":
        """By what a tokenizer writes into its pieces: a name of MARKS; None takes the one that the pieces show."""
        if mark is None:
            mark = shown(pieces)
        checks.known("mark", mark, MARKS)
        return MARKS[mark](pieces)


class Merged(DerivedMap):
    """P'_uv = mean_{i ∈ u} Σ_{j ∈ v} P_ij: to a word the sum, from a word the mean  (Clark et al. 2019, section 4.1).

    So a row keeps its mass.
    """

    def __init__(self, weights: AttentionMap, queries: Words | None, keys: Words | None) -> None:
        super().__init__(weights)
        self.queries, self.keys = queries, keys

    @property
    def shape(self) -> tuple[int, ...]:
        *batch, q, k = self.of[0].shape
        return (*batch, q if self.queries is None else len(self.queries), k if self.keys is None else len(self.keys))

    def rows(self, rows: Tensor | slice) -> Tensor:
        if self.queries is None:
            return self._summed(self.of[0].rows(rows))
        chosen = torch.arange(len(self.queries), device=self.device)[rows]
        word = torch.tensor(self.queries.of, device=self.device)
        # (words, pieces): one word may be asked for twice, so each has its own pieces
        place, piece = (chosen.unsqueeze(-1) == word).nonzero(as_tuple=True)
        found = self._summed(self.of[0].rows(piece))
        out = found.new_zeros(*found.shape[:-2], len(chosen), found.shape[-1]).index_add_(-2, place, found)
        return out / torch.bincount(place, minlength=len(chosen)).unsqueeze(-1)

    def _summed(self, weights: Tensor) -> Tensor:
        if self.keys is None:
            return weights
        word = torch.tensor(self.keys.of, device=weights.device)
        return weights.new_zeros(*weights.shape[:-1], len(self.keys)).index_add_(-1, word, weights)

    def _each(self) -> int:
        pieces = 1 if self.queries is None else max(Counter(self.queries.of).values(), default=1)
        return self.of[0]._each() * pieces


def _grouped(texts: Sequence[str], goes_on: Iterable[bool]) -> Words:
    text: list[str] = []
    of: list[int] = []
    for piece, same in zip(texts, goes_on, strict=True):
        if same and text:
            text[-1] += piece
        else:
            text.append(piece)
        of.append(len(text) - 1)
    return Words(tuple(text), tuple(of))


def _special(piece: str) -> bool:
    """[CLS], <s>, <|endoftext|>: a token that is no part of a word."""
    return len(piece) > 2 and (piece[0], piece[-1]) in (("[", "]"), ("<", ">"))


def wordpiece(pieces: Sequence[str]) -> Words:
    """play ##ing is playing  (Devlin et al. 2019): ## goes on."""
    return _grouped([bare(p) for p in pieces], [p.startswith("##") and len(p) > 2 for p in pieces])


def bpe(pieces: Sequence[str]) -> Words:
    """Ġplay ing is playing  (Radford et al. 2019): Ġ, a space, begins a word; Ċ, a line feed, is one."""
    return _spaced(pieces, ("Ġ", "Ċ"))


def sentencepiece(pieces: Sequence[str]) -> Words:
    """▁play ing is playing  (Kudo and Richardson 2018): ▁, a space, begins a word."""
    return _spaced(pieces, ("▁",))


def _spaced(pieces: Sequence[str], spaces: tuple[str, ...]) -> Words:
    goes_on = [
        n > 0 and not piece.startswith(spaces) and not _special(piece) and not _special(pieces[n - 1])
        for n, piece in enumerate(pieces)
    ]
    return _grouped([bare(p) for p in pieces], goes_on)


MARKS: dict[str, Callable[[Sequence[str]], Words]] = {
    "wordpiece": wordpiece,
    "bpe": bpe,
    "sentencepiece": sentencepiece,
}
_LETTERS = {"##": "wordpiece", "Ġ": "bpe", "▁": "sentencepiece"}


def bare(piece: str) -> str:
    """A piece without its mark; a mark alone stays."""
    for letters in _LETTERS:
        if piece.startswith(letters) and len(piece) > len(letters):
            return piece[len(letters) :]
    return piece


def marked(pieces: Sequence[str]) -> list[str]:
    """The names of the marks that pieces have."""
    return [name for letters, name in _LETTERS.items() if any(p.startswith(letters) and p != letters for p in pieces)]


def shown(pieces: Sequence[str]) -> str:
    """The name of the marks that the pieces have."""
    found = marked(pieces)
    if len(found) != 1:
        raise ValueError(
            f"the pieces show {'no mark' if not found else 'the marks of ' + ' and '.join(found)}; "
            f"name one of {', '.join(MARKS)}, or number the words: Words.by_ids(pieces, encoding.word_ids())"
        )
    return found[0]
