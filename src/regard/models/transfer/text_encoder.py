"""TextEncoder: a pretrained BERT inside of another model."""

from typing import ClassVar

from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.attn.terms.mask import Lengths
from regard.models.bert import BERT
from regard.models.transfer.fine_tuned_encoder import FineTunedEncoder


class TextEncoder(FineTunedEncoder):
    """h = BERT(tokens), whose lowest parts keep their weights  (Devlin et al. 2019)."""

    transformer_name: ClassVar[str] = "bert"
    embedding_names: ClassVar[tuple[str, ...]] = ("embedding", "place", "types", "embedding_norm")

    def __init__(self, bert: BERT, *, frozen: int = 0) -> None:
        super().__init__()
        self.bert = bert
        # the pooler reads the first token for a classifier of its own, which this model has not
        self.bert.pooler = None
        self.freeze(frozen)

    @property
    def transformer(self) -> BERT:
        return self.bert

    @property
    def embedding(self) -> nn.Embedding:
        return self.bert.embedding

    def forward(
        self, tokens: Tensor, lengths: Tensor, types: Tensor | None = None
    ) -> Tensor:  # "b t", "b", "b t" -> "b t d"
        """The states of texts that are padded behind their `lengths`."""
        return self.attend(tokens, lengths, types)[0]

    def attend(
        self, tokens: Tensor, lengths: Tensor, types: Tensor | None = None, need: Need = NOTHING
    ) -> tuple[Tensor, Tensor | None]:  # "b t", "b", "b t" -> "b t d", "b h t t"
        """The states, and the weights of the last layer if they are requested."""
        is_ragged = bool((lengths != tokens.shape[1]).any())
        return self.bert.attend(tokens, Lengths(lengths) if is_ragged else None, types=types, need=need)
