"""Attention: the equation as a layer with fixed terms."""

from typing import Any, Never

import torch
from torch import Tensor

from regard.attn.backends import LayerPath, fused
from regard.attn.base import AttentionModule
from regard.attn.call import Attended, AttentionInputs, Terms, split_score_mask
from regard.attn.functional import attend_inputs, explain_inputs
from regard.attn.kv_cache import KVCache
from regard.attn.terms.bias import Bias
from regard.attn.terms.mask import Mask, as_mask
from regard.attn.terms.normalizer import Normalizer, Softmax
from regard.attn.terms.position import Positions
from regard.attn.terms.read import Read, WeightedSum
from regard.attn.terms.score import Dot, Score
from regard.common import checks

# the class of each term, and an example of it
_KINDS: dict[str, tuple[type, str]] = {
    "score": (Score, "Dot()"),
    "bias": (Bias, "ALiBi(heads)"),
    "normalize": (Normalizer, "Softmax()"),
    "read": (Read, "WeightedSum()"),
    "mask": (Mask, "Causal()"),
}


def check_terms(**terms: object) -> None:
    """Raises if a term that is given is of another class than its name says."""
    for name, value in terms.items():
        if value is not None:
            checks.instance_of(name, value, *_KINDS[name])


class Attention(AttentionModule):
    """weights = normalize(score(q, k) + bias, mask); out = read(weights, v).

    `mask` applies to every call, such as Causal(); the mask of a call is combined with it by `&`. A call may also have
    a mask of numbers, which are added to the scores. In evaluation mode there is no dropout, and reads that sample in
    training (Sample, Gumbel) read the greatest weight.
    """

    def __init__(
        self,
        score: Score | None = None,
        *,
        bias: Bias | None = None,
        mask: Mask | None = None,
        normalize: Normalizer | None = None,
        read: Read | None = None,
        dropout: float = 0.0,
        backend: str | None = None,
    ) -> None:
        super().__init__()
        check_terms(score=score, bias=bias, normalize=normalize, read=read, mask=mask)
        checks.dropout(dropout, "Attention")
        self.score = Dot() if score is None else score
        self.bias = bias
        self.normalize = Softmax() if normalize is None else normalize
        self.read = WeightedSum() if read is None else read
        self.mask = mask
        self.dropout = dropout
        self.backend = backend

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
        score, bias, normalize = self._module_terms()
        is_plain = mask is None and positions is None and bias is None and self.backend is None
        if is_plain and not refused and not (self.training and self.dropout):
            k = q if k is None else k
            out = fused.plain_attention(q, k, v, score, normalize, self.read, self.mask)
            if out is not None:
                return out
        return super().forward(q, k, v, mask=mask, positions=positions, generator=generator, **refused)

    def project_kv(self, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e", "*b k v"
        """Projects the keys once, for many calls: `layer(q, cache)`."""
        checks.floating("k", k)
        self.score.check(None, k)
        return KVCache(self.score.keys(k), k if v is None else v)

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        return attend_inputs(*self.combine_terms(inputs), self.backend)

    def explain_inputs(self, inputs: AttentionInputs, path: LayerPath | None = None) -> str:
        return explain_inputs(*self.combine_terms(inputs), self.backend, path)

    def combine_terms(self, inputs: AttentionInputs) -> tuple[AttentionInputs, Terms]:
        """The inputs with the masks of the layer and of the call, and the terms; a mask of numbers is the bias."""
        # torch 2.6 compiles no slice of a named tuple
        q, k, v, mask, positions, need, generator = inputs
        bias: Bias | Tensor | None
        score, bias, normalize = self._module_terms()
        if mask is not None:
            bias, mask = split_score_mask(mask, bias, q, k, v)
        if self.mask is not None:
            mask = self.combine_masks(mask)
        if mask is not inputs.mask:
            inputs = AttentionInputs(q, k, v, mask, positions, need, generator)
        read = self.read if self.training else self.read.in_eval()
        return inputs, Terms(score, bias, normalize, read, self.dropout if self.training else 0.0)

    def _module_terms(self) -> tuple[Any, Any, Any]:
        """score, bias and normalize without nn.Module.__getattr__, which takes as long as the rest.

        An entry of __dict__ comes first: a bias of None, or a term that `regard.swap` puts before a registered one.
        """
        values, modules = self.__dict__, self._modules
        return (
            values["score"] if "score" in values else modules["score"],
            values["bias"] if "bias" in values else modules.get("bias"),
            values["normalize"] if "normalize" in values else modules["normalize"],
        )

    def combine_masks(self, mask: Mask | Tensor | None) -> Mask | Tensor | None:
        """The mask of the layer and the mask of this call, combined."""
        if self.mask is None or mask is None:
            return self.mask if mask is None else mask
        return self.mask & as_mask(mask)

    def extra_repr(self) -> str:
        options = [f"mask={self.mask!r}"] if self.mask is not None else []
        options += [f"read={self.read!r}"] if not isinstance(self.read, WeightedSum) else []
        options += [f"dropout={self.dropout:g}"] if self.dropout else []
        return ", ".join(options)
