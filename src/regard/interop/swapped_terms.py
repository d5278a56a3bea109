"""SwappedTerms: the terms that replace or join those of a call."""

from dataclasses import dataclass, fields

from torch import Tensor

from regard.attn.call import AttentionInputs, Terms
from regard.attn.terms.bias import Bias
from regard.attn.terms.mask import Mask, as_mask
from regard.attn.terms.normalizer import Normalizer
from regard.attn.terms.position import default_positions
from regard.attn.terms.read import Read
from regard.attn.terms.score import Score


@dataclass(frozen=True)
class SwappedTerms:
    """score, normalize and read replace those of a call; the mask is combined with its mask, the bias is added."""

    score: Score | None = None
    bias: Bias | None = None
    mask: Mask | None = None
    normalize: Normalizer | None = None
    read: Read | None = None

    def over(self, earlier: "SwappedTerms | None") -> "SwappedTerms":
        """These terms, and those of an earlier swap that they leave."""
        if earlier is None:
            return self
        if self.bias is not None and earlier.bias is not None:
            raise ValueError(
                f"bias cannot be added: an earlier swap added {earlier.bias!r}; restore that one first, or leave its "
                "modules out of layers="
            )
        merged = {f.name: getattr(self, f.name) or getattr(earlier, f.name) for f in fields(self)}
        if self.mask is not None and earlier.mask is not None:
            merged["mask"] = earlier.mask & self.mask
        return SwappedTerms(**merged)

    def apply(self, inputs: AttentionInputs, terms: Terms, training: bool) -> tuple[AttentionInputs, Terms]:
        """The arguments of a call with these terms."""
        if self.mask is not None:
            mask = self.mask if inputs.mask is None else as_mask(inputs.mask) & self.mask
            inputs = inputs._replace(mask=mask)
        read = self.read or terms.read
        return inputs, Terms(
            self.score or terms.score,
            self._bias(inputs, terms.bias),
            self.normalize or terms.normalize,
            read if training else read.in_eval(),
            terms.dropout,
        )

    def _bias(self, inputs: AttentionInputs, bias: Bias | Tensor | None) -> Bias | Tensor | None:
        """The sum of both; a bias of a call of torch or transformers is a tensor."""
        if self.bias is None or bias is None:
            return self.bias if bias is None else bias
        if self.bias.reads_scores:
            raise ValueError(
                f"bias={self.bias!r} reads the scores, and this call already adds a tensor to them; swap it into "
                "layers whose mask is boolean"
            )
        assert isinstance(bias, Tensor)
        assert isinstance(inputs.k, Tensor)
        count = inputs.k.shape[-2]
        positions = inputs.positions or default_positions(inputs.q.shape[-2], count, inputs.q.device)
        return bias + self.bias(inputs.q, *positions, count)
