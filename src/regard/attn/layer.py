"""Attention: the equation as a layer, its terms chosen once."""

from torch import Tensor

from regard.attn import checks
from regard.attn.base import AttentionModule
from regard.attn.call import Attended, AttentionInputs, Terms
from regard.attn.functional import attend_inputs, explain_inputs
from regard.attn.kv_cache import KVCache
from regard.attn.terms.bias import Bias
from regard.attn.terms.mask import Mask, as_mask
from regard.attn.terms.normalizer import Normalizer, Softmax
from regard.attn.terms.read import Read, WeightedSum
from regard.attn.terms.score import Dot, Score


class Attention(AttentionModule):
    """weights = normalize(score(q, k) + bias, mask); out = read(weights, v).

    `mask` here is one that every call has, such as Causal(); what a call passes is joined to it by `&`. In evaluation
    there is no dropout, and reads that draw to be trained (Sample, Gumbel) settle on the greatest weight.
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
        for name, value, kind, example in (
            ("score", score, Score, "Dot()"),
            ("bias", bias, Bias, "ALiBi(heads)"),
            ("normalize", normalize, Normalizer, "Softmax()"),
            ("read", read, Read, "WeightedSum()"),
            ("mask", mask, Mask, "Causal()"),
        ):
            if value is not None:
                checks.term(name, value, kind, example)
        self.score = Dot() if score is None else score
        self.bias = bias
        self.normalize = Softmax() if normalize is None else normalize
        self.read = WeightedSum() if read is None else read
        self.mask = mask
        self.dropout = dropout
        self.backend = backend

    def project_kv(self, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e", "*b k v"
        """Keys projected once, to be looked at by many calls: `layer(q, memory)`."""
        checks.floating("k", k)
        self.score.check(None, k)
        return KVCache(self.score.keys(k), k if v is None else v)

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        return attend_inputs(inputs._replace(mask=self.joined(inputs.mask)), self._terms(), self.backend)

    def explain_inputs(self, inputs: AttentionInputs) -> str:
        return explain_inputs(inputs._replace(mask=self.joined(inputs.mask)), self._terms(), self.backend)

    def _terms(self) -> Terms:
        read = self.read if self.training else self.read.settled()
        return Terms(self.score, self.bias, self.normalize, read, self.dropout if self.training else 0.0)

    def joined(self, mask: Mask | Tensor | None) -> Mask | Tensor | None:
        """The mask of every call and that of this one."""
        if self.mask is None or mask is None:
            return self.mask if mask is None else mask
        return self.mask & as_mask(mask)

    def extra_repr(self) -> str:
        said = [f"mask={self.mask!r}"] if self.mask is not None else []
        said += [f"read={self.read!r}"] if not isinstance(self.read, WeightedSum) else []
        said += [f"dropout={self.dropout:g}"] if self.dropout else []
        return ", ".join(said)
