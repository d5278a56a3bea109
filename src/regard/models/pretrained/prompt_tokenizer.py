"""ReleasedTokenizer: the tokenizer of a released language model, as its predictor uses it."""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, final

from regard.common.panics import failures_as_errors, panics_as_errors
from regard.data.text.library_vocabulary import LibraryVocabulary
from regard.data.text.special_tokens import SpecialTokens
from regard.data.text.subwords import TEXT_FAILURE, check_growth
from regard.data.text.tokenizer import utf8_errors

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# the text of bytes that are no character
_REPLACEMENT = "�"


@final
class ReleasedTokenizer:
    """Running text to the ids of a tokenizer of the library `tokenizers`; a PromptTokenizer.

    A prompt has the marks that the tokenizer puts around a text, such as the begin of Llama's texts. The id −1 stands
    for a special token that there is not.
    """

    kind = "sub-words"

    def __init__(self, library: "Tokenizer", special: SpecialTokens) -> None:
        self._library, self.special = library, special

    @staticmethod
    def from_library_json(text: str, special: SpecialTokens) -> "ReleasedTokenizer":
        """The tokenizer that `library_json` wrote."""
        from tokenizers import Tokenizer

        with failures_as_errors("the text is no tokenizer.json", "restore it"):
            check_growth(json.loads(text), "the text")
            return ReleasedTokenizer(Tokenizer.from_str(text), special)

    def library_json(self) -> str:
        """The content of its tokenizer.json."""
        return str(self._library.to_str())

    def library_vocabulary(self) -> LibraryVocabulary:
        """The vocabulary for other programs."""
        special = self.special
        ids = {"pad": special.pad, "bos": special.bos, "eos": special.eos, "unk": special.unk}
        return LibraryVocabulary.of_library(self._library, ids, forbidden=special.forbidden, matches_special=True)

    def __len__(self) -> int:
        return int(self._library.get_vocab_size())

    def encode_text(self, text: str) -> list[int]:
        with utf8_errors([text]), panics_as_errors(*TEXT_FAILURE):
            return list(self._library.encode(text, add_special_tokens=False).ids)

    def encode_prompt(self, text: str) -> list[int]:
        with utf8_errors([text]), panics_as_errors(*TEXT_FAILURE):
            ids = list(self._library.encode(text).ids)
        if not ids and self.special.bos < 0:
            raise ValueError("the prompt has no tokens, and this model has none that begins a text; give a prompt")
        return ids or [self.special.bos]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The tokens as the vocabulary has them: ▁ or Ġ starts a word."""
        return [self._library.id_to_token(n) or f"<{n}>" for n in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids, without special tokens."""
        with panics_as_errors(*TEXT_FAILURE):
            return str(self._library.decode(list(ids)))

    def text_decoder(self, prompt: Sequence[int]) -> "ReleasedTextDecoder":
        return ReleasedTextDecoder(self, prompt)


@final
class ReleasedTextDecoder:
    """Text id by id, as the ids are decoded all together: a half character is held back until it is whole.

    Each id is decoded behind some that are known, since a space before a word may depend on them.
    """

    def __init__(self, tokenizer: ReleasedTokenizer, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._ids = list(prompt)
        # the text of ids[start:end] is known
        self._start, self._end = 0, len(self._ids)

    def add(self, token: int) -> str:
        self._ids.append(token)
        return self._release(is_last=False)

    def finish(self) -> str:
        return self._release(is_last=True)

    def _release(self, is_last: bool) -> str:
        known = self._tokenizer.decode(self._ids[self._start : self._end])
        text = self._tokenizer.decode(self._ids[self._start :])
        if len(text) <= len(known) or (text.endswith(_REPLACEMENT) and not is_last):
            return ""
        self._start, self._end = self._end, len(self._ids)
        return text[len(known) :]
