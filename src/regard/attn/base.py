"""AttentionModule: the signature that the attentions of the library share, written once."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from regard.attn.call import NOTHING, Attended, AttentionInputs, Need
from regard.attn.kv_cache import KVCache
from regard.attn.terms.mask import Mask
from regard.attn.terms.position import Positions


class AttentionModule(nn.Module, ABC):
    """out = layer(q, k, v); k=None means k = q, self-attention, and v=None means v = k."""

    def forward(
        self,
        q: Tensor,
        k: Tensor | KVCache | None = None,
        v: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        positions: Positions | None = None,
    ) -> Tensor:  # "*b q d", "*b k e", "*b k v" -> "*b q v"
        return self.attend(q, k, v, mask=mask, positions=positions).out

    def attend(
        self,
        q: Tensor,
        k: Tensor | KVCache | None = None,
        v: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        positions: Positions | None = None,
        need: Need = NOTHING,
    ) -> Attended:
        """The same, with what `need` asks for beside the output."""
        return self.attend_inputs(AttentionInputs(q, q if k is None else k, v, mask, positions, need))

    def explain(
        self,
        q: Tensor,
        k: Tensor | KVCache | None = None,
        v: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        positions: Positions | None = None,
        need: Need = NOTHING,
    ) -> str:
        """Which backend runs this call and, for each one passed over, why."""
        return self.explain_inputs(AttentionInputs(q, q if k is None else k, v, mask, positions, need))

    @abstractmethod
    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        """The output, "*b q v", and what `inputs.need` asks for."""

    def explain_inputs(self, inputs: AttentionInputs) -> str:
        return f"{type(self).__name__} computes its weights itself: no backend is chosen"
