"""The ids of special tokens in every vocabulary: padding, begin and end of a sequence, unknown."""

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIAL = 4  # the first id of a text token

# the text of an unknown token
UNKNOWN = "⁇"
