"""Classifiers of texts above a pretrained encoder: EncoderClassifier, which is trained here, and ReleasedClassifier."""

from typing import ClassVar

from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.common import checks
from regard.layers.dropout import Dropout
from regard.layers.text_pooling import pool_texts
from regard.models.bert import BERTClassifier
from regard.models.text_classifier import TextClassifier, TextClassifierOutput
from regard.models.transfer.fine_tuned_encoder import fine_tuning_rates
from regard.models.transfer.text_encoder import TextEncoder, ragged_mask


class EncoderClassifier(TextClassifier):
    """logits = W pool(BERT(tokens)) + b, all fine-tuned together  (Devlin et al. 2019; Howard & Ruder 2018).

    `pooling` is the mean over the tokens, that of the first token, or the maximum. The learning rate of a layer of the
    encoder is `layer_decay` times that of the layer above it; the linear layer has `head_rate` times that of the
    highest.
    """

    queries_are_tokens: ClassVar[bool] = True

    def __init__(
        self,
        encoder: TextEncoder,
        classes: int,
        *,
        pooling: str = "mean",
        dropout: float = 0.1,
        layer_decay: float = 0.9,
        head_rate: float = 10.0,
    ) -> None:
        super().__init__()
        checks.positive_ints("EncoderClassifier", classes=classes)
        self.encoder, self.pooling = encoder, pooling
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(encoder.width, classes)
        nn.init.normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.output.bias)
        self.lr_multipliers = fine_tuning_rates(self, layer_decay, head_rate)

    @property
    def embedding(self) -> nn.Embedding:
        return self.encoder.embedding

    def classify(self, tokens: Tensor, lengths: Tensor, need: Need = NOTHING) -> TextClassifierOutput:  # "b t", "b"
        """The logits; the weights, if requested, are those that the pooled tokens give in the last layer, per head."""
        states, weights = self.encoder.attend(tokens, lengths, need=Need(weights=need.weights))
        logits = self.output(self.dropout(pool_texts(states, lengths, self.pooling)))
        if weights is None:
            return TextClassifierOutput(logits)
        queries = "first" if self.pooling == "first" else "mean"
        return TextClassifierOutput(logits, pool_texts(weights, lengths.unsqueeze(1), queries))  # "b h t"


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

    def classify(self, tokens: Tensor, lengths: Tensor, need: Need = NOTHING) -> TextClassifierOutput:  # "b t", "b"
        """The logits; the weights, if requested, are those of the first token in the last layer, per head."""
        mask = ragged_mask(tokens, lengths)
        states, weights = self.classifier.encoder.attend(tokens, mask, need=Need(weights=need.weights))
        logits = self.classifier.head(states)
        return TextClassifierOutput(logits, None if weights is None else weights[..., 0, :])  # weights "b h t"
