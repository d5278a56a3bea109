"""Landmark models, one a file."""

from torch import nn

from regard.models.convnet import ConvNet
from regard.models.ram import RAM
from regard.models.row_reader import RowReader
from regard.models.sagan import SelfAttentionGAN
from regard.models.seq2seq import Seq2Seq
from regard.models.show_attend_tell.model import ShowAttendTell
from regard.models.transformer import Transformer

TRANSLATORS: dict[str, type[Seq2Seq] | type[Transformer]] = {"seq2seq": Seq2Seq, "transformer": Transformer}
MODELS: dict[str, type[nn.Module]] = {
    **TRANSLATORS,
    "convnet": ConvNet,
    "rows": RowReader,
    "ram": RAM,
    "show-attend-tell": ShowAttendTell,
    "sagan": SelfAttentionGAN,
}

__all__ = [
    "MODELS",
    "RAM",
    "TRANSLATORS",
    "ConvNet",
    "RowReader",
    "SelfAttentionGAN",
    "Seq2Seq",
    "ShowAttendTell",
    "Transformer",
]
