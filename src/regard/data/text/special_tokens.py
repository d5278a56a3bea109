"""The ids of special tokens: padding, begin and end of a sequence, unknown; those of regard's own vocabularies."""

from typing import NamedTuple

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIAL = 4  # the first id of a text token

# the text of an unknown token
UNKNOWN = "⁇"


class SpecialTokens(NamedTuple):
    """The ids of the special tokens of a vocabulary."""

    pad: int
    bos: int
    eos: int
    unk: int | None  # None: every text has tokens
    forbidden: tuple[int, ...]  # tokens that no generated text has


OWN_TOKENS = SpecialTokens(PAD, BOS, EOS, UNK, (PAD, BOS, UNK))
