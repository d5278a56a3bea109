"""TextEmbedder: one vector per text, from the states of an encoder."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.terms.sequence_masks import Documents
from regard.common import checks
from regard.layers.packed_layers import LayerWeights, pack_layers, packed_layers
from regard.layers.packed_texts import POOLINGS, PackedTexts, packs
from regard.models.transfer.text_encoder import TextEncoder

# tokens that are computed together
MOST_TOKENS = 2048


class TextEmbedder(nn.Module):
    """v = pool(h₁ … hₙ) / ‖pool(h₁ … hₙ)‖₂, h = encoder(text)  (Reimers & Gurevych 2019).

    `pooling` is the mean over all tokens, the first token, or the maximum; without `normalize` v is not divided by its
    length. Texts are packed, so no padding is computed, and a vector does not depend on the other texts. The learning
    rate of a layer is `layer_decay` times that of the layer above it.
    """

    def __init__(
        self, encoder: TextEncoder, *, pooling: str = "mean", normalize: bool = True, layer_decay: float = 0.9
    ) -> None:
        super().__init__()
        checks.known("pooling", pooling, POOLINGS)
        self.encoder, self.pooling, self.normalize = encoder, pooling, normalize
        self.lr_multipliers = encoder.lr_multipliers("encoder", layer_decay)

    @property
    def width(self) -> int:
        return self.encoder.width

    def states(self, texts: PackedTexts, weights: Sequence[LayerWeights] | None = None) -> Tensor:  # -> "n d"
        """The states of all tokens; `weights` are those of `pack_layers`."""
        bert, positions = self.encoder.bert, texts.positions
        if len(texts.lengths) == 1:
            alone: Tensor = bert(texts.tokens.unsqueeze(0)).squeeze(0)
            return alone
        if not torch.is_grad_enabled():
            embedded = bert.embed(texts.tokens, positions=positions)
            states = packed_layers(bert.layers, embedded, texts.lengths, positions, weights)
            if states is not None:
                normed: Tensor = bert.norm(states)
                return normed
        mask = Documents(texts.documents.unsqueeze(0))
        packed: Tensor = bert(texts.tokens.unsqueeze(0), mask, positions=positions.unsqueeze(0)).squeeze(0)
        return packed

    def forward(self, texts: PackedTexts, weights: Sequence[LayerWeights] | None = None) -> Tensor:  # -> "b d"
        vectors = texts.pool(self.states(texts, weights), self.pooling)
        return F.normalize(vectors, dim=-1) if self.normalize else vectors

    @torch.no_grad()
    def vectors(
        self, texts: Sequence[Sequence[int]], done: Callable[[int], object] | None = None
    ) -> Tensor:  # -> "b d"
        """The vectors of many texts, given as tokens; `done` is called with the number of texts that are computed."""
        parameter = self.encoder.bert.embedding_norm.weight
        vectors = parameter.new_empty(len(texts), self.width)
        count = 0
        parts = list(packs(list(map(len, texts)), MOST_TOKENS))
        weights = pack_layers(self.encoder.bert.layers, MOST_TOKENS) if len(parts) > 1 else None
        for pack in parts:
            packed = PackedTexts.of([texts[n] for n in pack]).to(parameter.device)
            vectors[torch.tensor(pack, device=parameter.device)] = self(packed, weights)
            count += len(pack)
            if done is not None:
                done(count)
        return vectors
