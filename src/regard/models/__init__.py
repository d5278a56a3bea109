"""Landmark models, one a file."""

from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer

MODELS: dict[str, type[Seq2Seq] | type[Transformer]] = {"seq2seq": Seq2Seq, "transformer": Transformer}

__all__ = ["MODELS", "Seq2Seq", "Transformer"]
