"""AttentionModule: the abstract base class with the call signature that all attention layers share."""

from abc import ABC, abstractmethod
from typing import Any, Never, Self

import torch
from torch import Tensor, nn

from regard.attn import foreign_arguments
from regard.attn.call import NOTHING, Attended, AttentionInputs, Need
from regard.attn.kv_cache import KVCache
from regard.attn.terms.mask import Mask
from regard.attn.terms.position import Positions


class AttentionModule(nn.Module, ABC):
    """out = layer(q, k, v); k=None means k = q, self-attention, and v=None means v = k.

    Dropout and reads that sample take their random numbers from `generator`; None: torch's own.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # raised before Python complains of the missing arguments instead
        foreign_arguments.refuse_equivalents(cls, kwargs)
        return super().__new__(cls)

    def forward(
        self,
        q: Tensor,
        k: Tensor | KVCache | None = None,
        v: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        positions: Positions | None = None,
        generator: torch.Generator | None = None,
        **refused: Never,
    ) -> Tensor:  # "*b q d", "*b k e", "*b k v" -> "*b q v"
        if refused:
            foreign_arguments.refuse_arguments(type(self).__name__, refused)
        return self.attend_inputs(AttentionInputs(q, q if k is None else k, v, mask, positions, NOTHING, generator)).out

    def attend(
        self,
        q: Tensor,
        k: Tensor | KVCache | None = None,
        v: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        positions: Positions | None = None,
        need: Need = NOTHING,
        generator: torch.Generator | None = None,
        **refused: Never,
    ) -> Attended:
        """Like `forward`, and returns the results that `need` requests beside the output."""
        if refused:
            foreign_arguments.refuse_arguments(type(self).__name__, refused)
        return self.attend_inputs(AttentionInputs(q, q if k is None else k, v, mask, positions, need, generator))

    def explain(
        self,
        q: Tensor,
        k: Tensor | KVCache | None = None,
        v: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        positions: Positions | None = None,
        need: Need = NOTHING,
        generator: torch.Generator | None = None,
    ) -> str:
        """Names the backend that runs this call and gives, for every other backend, the reason why it does not."""
        return self.explain_inputs(AttentionInputs(q, q if k is None else k, v, mask, positions, need, generator))

    @abstractmethod
    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        """Returns the output, "*b q v", and the results that `inputs.need` requests."""

    def explain_inputs(self, inputs: AttentionInputs) -> str:
        return f"{type(self).__name__} computes its weights itself: no backend is chosen"
