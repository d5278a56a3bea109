"""FineTunedEncoder: a pretrained Transformer inside of another model, with frozen layers and rates by layer."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn


class FineTunedEncoder(nn.Module):
    """A Transformer whose lowest parts keep their weights  (Howard & Ruder 2018; Devlin et al. 2019).

    `frozen` parts are not trained and have no dropout in training: 0 none, 1 the embeddings, n + 1 also the lowest n
    layers. A subclass names its attribute with the Transformer, which has `layers`, `norm`, `dropout` and a width, and
    the attributes of the Transformer up to the first layer.
    """

    transformer_name: ClassVar[str]
    embedding_names: ClassVar[tuple[str, ...]]

    frozen: int

    @property
    def transformer(self) -> Any:
        """The pretrained model."""
        return getattr(self, self.transformer_name)

    @property
    def width(self) -> int:
        width: int = self.transformer.width
        return width

    def freeze(self, frozen: int) -> None:
        """Takes the parts out of training; for the constructor."""
        count = len(self.transformer.layers)
        if not 0 <= frozen <= 1 + count:
            raise ValueError(
                f"frozen must be from 0 to {1 + count}, the embeddings and {count} layers, "
                f"got {frozen}; try frozen=1, which freezes the embeddings"
            )
        self.frozen = frozen
        for part in self._frozen_parts():
            part.requires_grad_(False)

    def _frozen_parts(self) -> Iterator[nn.Module | nn.Parameter]:
        transformer = self.transformer
        if self.frozen:
            parts = (getattr(transformer, name) for name in (*self.embedding_names, "dropout"))
            yield from (part for part in parts if part is not None)
            yield from transformer.layers[: self.frozen - 1]
        if self.frozen == 1 + len(transformer.layers):
            yield transformer.norm

    def train(self, mode: bool = True) -> Self:
        """Training mode, in which frozen parts stay in evaluation mode: their states are those of the folder."""
        super().train(mode)
        for part in self._frozen_parts():
            if isinstance(part, nn.Module):
                part.eval()
        return self

    def lr_multipliers(self, name: str, decay: float) -> dict[str, float]:
        """Factors of the learning rate by names of parameters, as a model has them whose attribute `name` this is.

        decay^(L − n) for layer n of L, decay^L for the embeddings  (Howard & Ruder 2018; Clark et al. 2020).
        """
        if not 0 < decay <= 1:
            raise ValueError(f"decay must be above 0 and at most 1, got {decay}; try decay=0.9")
        prefix, count = f"{name}.{self.transformer_name}", len(self.transformer.layers)
        factors = {f"{prefix}.layers.{n}": decay ** (count - 1 - n) for n in range(count)}
        return factors | {f"{prefix}.{part}": decay**count for part in self.embedding_names if self._has_weights(part)}

    def _has_weights(self, name: str) -> bool:
        part = getattr(self.transformer, name)
        return isinstance(part, nn.Parameter) or (part is not None and any(True for _ in part.parameters()))


def fine_tuning_rates(model: nn.Module, decay: float, head: float, encoder: str = "encoder") -> dict[str, float]:
    """`lr_multipliers` of a model with a FineTunedEncoder at this path: by layer in the encoder, `head` above it.

    The layers above the encoder begin with random weights, so they learn faster.
    """
    if not head > 0:
        raise ValueError(f"head must be positive, got {head}; try head=10")
    part = model.get_submodule(encoder)
    assert isinstance(part, FineTunedEncoder)
    others = {
        name: head
        for name, child in model.named_children()
        if name != encoder.split(".")[0] and any(True for _ in child.parameters())
    }
    rates = {name: head for name, _ in model.named_parameters(recurse=False)}
    return {**part.lr_multipliers(encoder, decay), **others, **rates}


@torch.no_grad()
def copy_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copies tensors into the parameters of these names; a model on the meta device, which has no data, stays empty."""
    parameters = dict(model.named_parameters())
    for name, tensor in weights.items():
        if not parameters[name].is_meta:
            parameters[name].copy_(tensor)
