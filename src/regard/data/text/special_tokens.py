"""The numbers with a meaning in every vocabulary: padding, begin and end of a sequence, what was never seen."""

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIAL = 4  # the first number that stands for text

# what is written where text cannot say what stood there
UNKNOWN = "⁇"
