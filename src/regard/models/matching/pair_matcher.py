"""PairMatcher: the base of models that compare two texts, given as the vectors of their tokens."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from regard.attn.catalogue import MECHANISMS
from regard.attn.layer import Attention
from regard.attn.mechanisms.coattention import CoAttention
from regard.attn.terms.read import WeightedSum
from regard.attn.terms.sequence_masks import Lengths
from regard.common import checks
from regard.layers.text_pooling import pool_texts


class PairMatcher(nn.Module, ABC):
    """logits = f(a, b): "b n d" and "b m d" with the number of tokens of each, 1 or more; padding changes nothing."""

    # the number of vectors that the model puts before either text, such as a null token
    num_prepended: int = 0

    @abstractmethod
    def forward(
        self, first: Tensor, second: Tensor, first_lengths: Tensor, second_lengths: Tensor
    ) -> Tensor:  # "b n d", "b m d", "b", "b" -> "b k"
        """The logits of classes, or of one score."""


def stack_texts(
    first: Tensor, second: Tensor, first_lengths: Tensor, second_lengths: Tensor
) -> tuple[Tensor, Tensor]:  # "b n d", "b m d", "b", "b" -> "2b max(n,m) d", "2b"
    """Both texts as one batch, for layers that read them in the same way."""
    longest = max(first.shape[1], second.shape[1])
    padded = [nn.functional.pad(x, (0, 0, 0, longest - x.shape[1])) for x in (first, second)]
    return torch.cat(padded), torch.cat([first_lengths, second_lengths])


def cross_attend(
    attention: CoAttention, first: Tensor, second: Tensor, first_lengths: Tensor, second_lengths: Tensor
) -> tuple[Tensor, Tensor]:  # "b n d", "b m d", "b", "b" -> "b n d", "b m d"
    """The values that each text reads from the other."""
    return attention(first, second, mask=Lengths(second_lengths), back=Lengths(first_lengths))


def pool_both(x: Tensor, lengths: Tensor) -> Tensor:  # "b n d", "b" -> "b 2d"
    """The mean and the maximum over tokens."""
    return torch.cat([pool_texts(x, lengths, how) for how in ("mean", "max")], -1)


def plain_attention(name: str, dim: int) -> Attention:
    """The mechanism of that name, if it is a score, a normalizer and a weighted sum."""
    checks.known("attention", name, MECHANISMS)
    mechanism = MECHANISMS[name](dim, dim)
    if (
        not isinstance(mechanism, Attention)
        or mechanism.bias is not None
        or mechanism.mask is not None
        or not isinstance(mechanism.read, WeightedSum)
    ):
        raise ValueError(
            f"attention={name!r} is more than a score and a normalizer, which is all that two texts can share in both "
            "directions; try attention='additive', 'scaled-dot' or 'entmax'"
        )
    return mechanism


def named_coattention(name: str, dim: int) -> CoAttention:
    """The score and the normalizer of the mechanism of that name, read in both directions."""
    mechanism = plain_attention(name, dim)
    return CoAttention(mechanism.score, normalize=mechanism.normalize)
