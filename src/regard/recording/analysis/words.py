"""Words: which tokens of a text form a word, and maps from word to word."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.common import checks
from regard.recording.analysis.derived_maps import DerivedMap


@dataclass(frozen=True)
class Words:
    """`text[w]` is a word, `word_ids[i]` the word of token i; words are in the order of their first tokens.

    By the marks of a tokenizer: `Words.by_mark(tokens, "wordpiece")`; by a fast tokenizer of transformers:
    `Words.by_ids(tokens, encoding.word_ids())`.
    """

    text: tuple[str, ...]
    word_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        numbers = sorted(set(self.word_ids))
        if numbers != list(range(len(self.text))):
            raise ValueError(
                f"every word must have a token and every token a word, got {len(self.text)} words and tokens of "
                f"{numbers[:20]}; number the words from 0"
            )

    def __len__(self) -> int:
        return len(self.text)

    @staticmethod
    def by_ids(tokens: Sequence[str], ids: Sequence[int | None]) -> "Words":
        """Neighbouring tokens of one number form a word; None, as special tokens have, is a word of its own."""
        if len(ids) != len(tokens):
            raise ValueError(f"ids must number {len(tokens)} tokens, got {len(ids)} of them; pass encoding.word_ids()")
        return _join_tokens(
            [strip_mark(token) for token in tokens],
            [n > 0 and ids[n] is not None and ids[n] == ids[n - 1] for n in range(len(ids))],
        )

    @staticmethod
    def by_mark(tokens: Sequence[str], mark: str | None = None) -> "Words":
        """Words by the marks that a tokenizer writes into its tokens: a name of MARKS; None detects it."""
        if mark is None:
            mark = detect_mark(tokens)
        checks.known("mark", mark, MARKS)
        return MARKS[mark](tokens)


class WordMap(DerivedMap):
    """P'_uv = mean_{i ∈ u} Σ_{j ∈ v} P_ij: to a word the sum, from a word the mean  (Clark et al. 2019, section 4.1).

    A row keeps its sum.
    """

    def __init__(self, weights: AttentionMap, queries: Words | None, keys: Words | None) -> None:
        super().__init__(weights)
        self.queries, self.keys = queries, keys

    @property
    def shape(self) -> tuple[int, ...]:
        *batch, q, k = self.sources[0].shape
        return (*batch, q if self.queries is None else len(self.queries), k if self.keys is None else len(self.keys))

    def rows(self, rows: Tensor | slice) -> Tensor:
        if self.queries is None:
            return self._sum_keys(self.sources[0].rows(rows))
        selected = torch.arange(len(self.queries), device=self.device)[rows]
        word = torch.tensor(self.queries.word_ids, device=self.device)
        # (words, tokens): a word may be selected twice, so each has its own tokens
        index, token = (selected.unsqueeze(-1) == word).nonzero(as_tuple=True)
        weights = self._sum_keys(self.sources[0].rows(token))
        out = weights.new_zeros(*weights.shape[:-2], len(selected), weights.shape[-1]).index_add_(-2, index, weights)
        return out / torch.bincount(index, minlength=len(selected)).unsqueeze(-1)

    def _sum_keys(self, weights: Tensor) -> Tensor:
        if self.keys is None:
            return weights
        word = torch.tensor(self.keys.word_ids, device=weights.device)
        return weights.new_zeros(*weights.shape[:-1], len(self.keys)).index_add_(-1, word, weights)

    def _weights_per_row(self) -> int:
        tokens = 1 if self.queries is None else max(Counter(self.queries.word_ids).values(), default=1)
        return self.sources[0]._weights_per_row() * tokens


def _join_tokens(texts: Sequence[str], continues: Iterable[bool]) -> Words:
    text: list[str] = []
    word_ids: list[int] = []
    for token, same in zip(texts, continues, strict=True):
        if same and text:
            text[-1] += token
        else:
            text.append(token)
        word_ids.append(len(text) - 1)
    return Words(tuple(text), tuple(word_ids))


def _is_special(token: str) -> bool:
    """Whether this is a special token, such as [CLS], <s> or <|endoftext|>."""
    return len(token) > 2 and (token[0], token[-1]) in (("[", "]"), ("<", ">"))


def _by_continuation(tokens: Sequence[str]) -> Words:
    return _join_tokens([strip_mark(t) for t in tokens], [t.startswith("##") and len(t) > 2 for t in tokens])


def _by_spaces(*spaces: str) -> Callable[[Sequence[str]], Words]:
    """Words that begin with one of these marks of a space, or are special."""

    def words(tokens: Sequence[str]) -> Words:
        continues = [
            n > 0 and not token.startswith(spaces) and not _is_special(token) and not _is_special(tokens[n - 1])
            for n, token in enumerate(tokens)
        ]
        return _join_tokens([strip_mark(t) for t in tokens], continues)

    return words


def find_words(*texts: Sequence[str]) -> list[Words] | None:
    """The words of texts of one model: by the marks of their tokenizer, or by the spaces between characters. None if
    every token is a word, or nothing tells words apart.
    """
    marks = marks_of([token for text in texts for token in text])
    if len(marks) > 1:
        return None
    words = [_by_mark(text, marks[0]) if marks else _by_space_tokens(text) for text in texts]
    return words if any(len(each) < len(text) for each, text in zip(words, texts, strict=True)) else None


def _by_mark(tokens: Sequence[str], mark: str) -> Words:
    """Words by a mark, or by a token that is a space alone, which is written ␣ and belongs to the word behind it."""
    words = MARKS[mark](["▁" if token == "␣" else token for token in tokens])
    return Words(tuple(map(strip_mark, words.text)), words.word_ids)


def _by_space_tokens(tokens: Sequence[str]) -> Words:
    """Characters with tokens for spaces: a space, also written ␣, ends a word; without any, each token is a word."""
    spaces = [token in (" ", "␣") for token in tokens]
    continues = [
        n > 0 and any(spaces) and not (_is_special(token) or _is_special(tokens[n - 1]) or spaces[n - 1])
        for n, token in enumerate(tokens)
    ]
    texts = ["" if space and same else token for token, space, same in zip(tokens, spaces, continues, strict=True)]
    return _join_tokens(texts, continues)


MARKS: dict[str, Callable[[Sequence[str]], Words]] = {
    # play ##ing is playing  (Devlin et al. 2019): ## continues a word
    "wordpiece": _by_continuation,
    # Ġplay ing is playing  (Radford et al. 2019): Ġ, a space, begins a word; Ċ, a line feed, is one
    "bpe": _by_spaces("Ġ", "Ċ"),
    # ▁play ing is playing  (Kudo and Richardson 2018): ▁, a space, begins a word
    "sentencepiece": _by_spaces("▁"),
}
_LETTERS = {"##": "wordpiece", "Ġ": "bpe", "▁": "sentencepiece"}


def strip_mark(token: str) -> str:
    """A token without its mark; a mark alone stays."""
    for letters in _LETTERS:
        if token.startswith(letters) and len(token) > len(letters):
            return token[len(letters) :]
    return token


def marks_of(tokens: Sequence[str]) -> list[str]:
    """The names of the marks that occur in the tokens."""
    return [name for letters, name in _LETTERS.items() if any(t.startswith(letters) and t != letters for t in tokens)]


def detect_mark(tokens: Sequence[str]) -> str:
    """The name of the only marks that occur in the tokens."""
    names = marks_of(tokens)
    if len(names) != 1:
        raise ValueError(
            f"the tokens show {'no mark' if not names else 'the marks of ' + ' and '.join(names)}; "
            f"name one of {', '.join(MARKS)}, or number the words: Words.by_ids(tokens, encoding.word_ids())"
        )
    return names[0]
