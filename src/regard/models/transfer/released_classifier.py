"""ReleasedClassifier: a BERTClassifier with the interface of models that classify texts."""

from typing import ClassVar

from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.attn.terms.mask import Lengths
from regard.models.bert import BERTClassifier
from regard.models.text_classifier import TextClassifier, TextClassifierOutput


class ReleasedClassifier(TextClassifier):
    """logits = W tanh(W_p x + b_p) + b, x the state of the first token  (Devlin et al. 2019)."""

    queries_are_tokens: ClassVar[bool] = True
    pooling: ClassVar[str] = "first"

    def __init__(self, classifier: BERTClassifier) -> None:
        super().__init__()
        self.classifier = classifier

    @property
    def embedding(self) -> nn.Embedding:
        return self.classifier.encoder.embedding

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:  # "b t", "b" -> "b k"
        return self.classify(tokens, lengths).logits

    def classify(self, tokens: Tensor, lengths: Tensor, need: Need = NOTHING) -> TextClassifierOutput:  # "b t", "b"
        """The logits; the weights, if requested, are those of the first token in the last layer, per head."""
        is_ragged = bool((lengths != tokens.shape[1]).any())
        mask, wanted = Lengths(lengths) if is_ragged else None, Need(weights=need.weights)
        states, weights = self.classifier.encoder.attend(tokens, mask, need=wanted)
        logits = self.classifier.head(states)
        return TextClassifierOutput(logits, None if weights is None else weights[..., 0, :])  # weights "b h t"
