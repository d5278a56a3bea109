"""Landmark models, one per file."""

from torch import nn

from regard.models.bag_of_words import BagOfWords
from regard.models.convnet import ConvNet
from regard.models.gpt2 import GPT2
from regard.models.hierarchical import HierarchicalAttention
from regard.models.ram import RAM
from regard.models.row_reader import RowReader
from regard.models.sagan import SelfAttentionGAN
from regard.models.self_attentive import SelfAttentive
from regard.models.seq2seq import Seq2Seq
from regard.models.show_attend_tell.model import ShowAttendTell
from regard.models.transformer import Transformer
from regard.models.transformer_xl import TransformerXL

TRANSLATORS: dict[str, type[Seq2Seq] | type[Transformer]] = {"seq2seq": Seq2Seq, "transformer": Transformer}
LANGUAGE_MODELS: dict[str, type[GPT2] | type[TransformerXL]] = {"gpt2": GPT2, "transformer-xl": TransformerXL}
MODELS: dict[str, type[nn.Module]] = {
    **TRANSLATORS,
    **LANGUAGE_MODELS,
    "convnet": ConvNet,
    "rows": RowReader,
    "ram": RAM,
    "show-attend-tell": ShowAttendTell,
    "sagan": SelfAttentionGAN,
    "self-attentive": SelfAttentive,
    "hierarchical": HierarchicalAttention,
    "bag-of-words": BagOfWords,
}

__all__ = [
    "GPT2",
    "LANGUAGE_MODELS",
    "MODELS",
    "RAM",
    "TRANSLATORS",
    "BagOfWords",
    "ConvNet",
    "HierarchicalAttention",
    "RowReader",
    "SelfAttentionGAN",
    "SelfAttentive",
    "Seq2Seq",
    "ShowAttendTell",
    "Transformer",
    "TransformerXL",
]
