"""Convolutional sequence to sequence (Gehring et al. 2017), for sentences and for images."""

from regard.models.conv.captioner import ConvCaptioner
from regard.models.conv.seq2seq import ConvSeq2Seq

__all__ = ["ConvCaptioner", "ConvSeq2Seq"]
