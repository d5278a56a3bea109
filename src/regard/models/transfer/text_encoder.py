"""TextEncoder: a pretrained BERT inside of another model, with frozen layers and learning rates by layer."""

from collections.abc import Iterator, Mapping
from typing import Self

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.attn.terms.mask import Lengths
from regard.models.bert import BERT

# everything up to the first layer
_EMBEDDINGS = ("embedding", "place", "types", "embedding_norm")


class TextEncoder(nn.Module):
    """h = BERT(tokens), whose lowest parts keep their weights  (Howard & Ruder 2018; Devlin et al. 2019).

    `frozen` parts are not trained and have no dropout in training: 0 none, 1 the embeddings, n + 1 also the lowest n
    layers; `TextEncoder.parts(bert)` is the number of all.
    """

    def __init__(self, bert: BERT, *, frozen: int = 0) -> None:
        super().__init__()
        if not 0 <= frozen <= self.parts(bert):
            raise ValueError(
                f"frozen must be from 0 to {self.parts(bert)}, the embeddings and {len(bert.layers)} layers, "
                f"got {frozen}; try frozen=1, which freezes the embeddings"
            )
        self.bert, self.frozen = bert, frozen
        # the pooler reads the first token for a classifier of its own, which this model has not
        self.bert.pooler = None
        for module in self._frozen_modules():
            module.requires_grad_(False)

    @staticmethod
    def parts(bert: BERT) -> int:
        """The number of parts that can be frozen: the embeddings and every layer."""
        return 1 + len(bert.layers)

    @property
    def width(self) -> int:
        return self.bert.width

    @property
    def embedding(self) -> nn.Embedding:
        return self.bert.embedding

    def _frozen_modules(self) -> Iterator[nn.Module]:
        if self.frozen:
            parts = (getattr(self.bert, name) for name in (*_EMBEDDINGS, "dropout"))
            yield from (part for part in parts if part is not None)
            yield from self.bert.layers[: self.frozen - 1]
        if self.frozen == self.parts(self.bert):
            yield self.bert.norm

    def train(self, mode: bool = True) -> Self:
        """Training mode, in which frozen parts stay in evaluation mode: their states are those of the folder."""
        super().train(mode)
        for module in self._frozen_modules():
            module.eval()
        return self

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

    def lr_multipliers(self, name: str, decay: float) -> dict[str, float]:
        """Factors of the learning rate by names of parameters, as a model has them whose attribute `name` this is.

        decay^(L − n) for layer n of L, decay^L for the embeddings  (Howard & Ruder 2018; Clark et al. 2020).
        """
        if not 0 < decay <= 1:
            raise ValueError(f"decay must be above 0 and at most 1, got {decay}; try decay=0.9")
        count = len(self.bert.layers)
        factors = {f"{name}.bert.layers.{n}": decay ** (count - 1 - n) for n in range(count)}
        return factors | {f"{name}.bert.{part}": decay**count for part in _EMBEDDINGS if self._has_weights(part)}

    def _has_weights(self, part: str) -> bool:
        module = getattr(self.bert, part)
        return module is not None and any(True for _ in module.parameters())


def fine_tuning_rates(model: nn.Module, decay: float, head: float) -> dict[str, float]:
    """`lr_multipliers` of a model whose attribute `encoder` is a TextEncoder: by layer in the encoder, `head` above it.

    The layers above the encoder begin with random weights, so they learn faster.
    """
    if not head > 0:
        raise ValueError(f"head must be positive, got {head}; try head=10")
    encoder = model.encoder
    assert isinstance(encoder, TextEncoder)
    others = {
        name: head
        for name, part in model.named_children()
        if part is not encoder and any(True for _ in part.parameters())
    }
    own = {name: head for name, _ in model.named_parameters(recurse=False)}
    return {**encoder.lr_multipliers("encoder", decay), **others, **own}


@torch.no_grad()
def copy_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copies tensors into the parameters of these names; a model on the meta device, which has no data, stays empty."""
    parameters = dict(model.named_parameters())
    for name, tensor in weights.items():
        if not parameters[name].is_meta:
            parameters[name].copy_(tensor)
