"""BagOfWords: logistic regression on word counts, the baseline that ignores word order."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.common import checks
from regard.layers.lengths import inside_lengths
from regard.models.text_classifier import TextClassifier, TextClassifierOutput

# an odd factor near 2⁶⁴ divided by the golden ratio spreads neighbouring numbers  (Knuth 1998, 6.4)
_HASH_FACTOR = -7046029254386353131


class BagOfWords(TextClassifier):
    """logits = b + Σ_w count(w) W_w: multinomial logistic regression on counts of words, and of pairs of neighbours.

    With `bigrams`, pairs are counted too, in that many buckets by a hash of the two words; pairs that share a bucket
    share its weights  (Weinberger et al. 2009). All weights start at zero.
    """

    attends: ClassVar[bool] = False

    def __init__(self, vocabulary: int, classes: int, *, bigrams: int = 20_000, padding: int = 0) -> None:
        super().__init__()
        checks.positive_ints("BagOfWords", vocabulary=vocabulary, classes=classes)
        if isinstance(bigrams, bool) or not isinstance(bigrams, int) or bigrams < 0:
            raise ValueError(f"bigrams must be a number of buckets, 0 or more, got {bigrams!r}; try bigrams=100000")
        self.vocabulary, self.bigrams, self.padding = vocabulary, bigrams, padding
        self.weights = nn.EmbeddingBag(vocabulary, classes, mode="sum", padding_idx=padding)
        self.pairs = nn.EmbeddingBag(bigrams + 1, classes, mode="sum", padding_idx=bigrams) if bigrams else None
        self.bias = nn.Parameter(torch.zeros(classes))
        for table in (self.weights, self.pairs):
            if table is not None:
                nn.init.zeros_(table.weight)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:  # "b t", "b" -> "b k"
        if tokens.ndim != 2 or lengths.shape != tokens.shape[:1]:
            raise ValueError(
                f"tokens must be (texts, words) with one length per text, got {checks.shape(tokens)} and "
                f"{checks.shape(lengths)}; pad the texts"
            )
        is_real = inside_lengths(lengths, tokens.shape[1])  # "b t"
        logits = self.weights(tokens.masked_fill(~is_real, self.padding)) + self.bias
        if self.pairs is not None and tokens.shape[1] > 1:
            logits = logits + self.pairs(self.buckets(tokens).masked_fill(~is_real[:, 1:], self.bigrams))
        return logits

    def classify(self, tokens: Tensor, lengths: Tensor, need: Need = NOTHING) -> TextClassifierOutput:  # "b t", "b"
        if need != NOTHING:
            raise ValueError(f"need={need} asks for results of an attention, and a bag of words has none; leave it out")
        return TextClassifierOutput(self(tokens, lengths))

    def buckets(self, tokens: Tensor) -> Tensor:  # "b t" -> "b t-1"
        """The bucket of every pair of neighbours."""
        pair = tokens[:, :-1].long() * self.vocabulary + tokens[:, 1:]
        # 64-bit integers wrap around; the upper bits are the well-mixed ones
        return ((pair * _HASH_FACTOR) >> 32).remainder(self.bigrams)
