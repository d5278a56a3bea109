"""Landmark models, one per file."""

from torch import nn

from regard.models.acting.agent import Agent
from regard.models.bag_of_words import BagOfWords
from regard.models.bert import BERT, BERTClassifier, BERTMaskedLM
from regard.models.clips.clip_attention import ClipAttention
from regard.models.clips.clip_cell import ClipCell
from regard.models.clips.clip_convnet import ClipConvNet
from regard.models.clips.space_time import SpaceTimeEncoder
from regard.models.conv.captioner import ConvCaptioner
from regard.models.conv.seq2seq import ConvSeq2Seq
from regard.models.convnet import ConvNet
from regard.models.gpt2 import GPT2
from regard.models.hierarchical import HierarchicalAttention
from regard.models.language_model import LanguageModel
from regard.models.listening.listen_attend_spell import ListenAttendSpell
from regard.models.listening.speech_transformer import SpeechTransformer
from regard.models.llama import Llama
from regard.models.matching.decomposable import Decomposable
from regard.models.matching.deep_attention_matching import DeepAttentionMatching
from regard.models.matching.esim import ESIM
from regard.models.memory.ntm import NTM
from regard.models.mlp import MLP
from regard.models.ram import RAM
from regard.models.reading.bidaf import BiDAF
from regard.models.reading.memn2n import MemN2N
from regard.models.recurrent_language_model import RecurrentLanguageModel
from regard.models.responding.flat import FlatResponder
from regard.models.responding.hran import HRAN
from regard.models.row_reader import RowReader
from regard.models.sagan import SelfAttentionGAN
from regard.models.self_attentive import SelfAttentive
from regard.models.seq2seq import Seq2Seq
from regard.models.show_attend_tell.model import ShowAttendTell
from regard.models.tagger import RecurrentTagger, TransformerTagger, WindowTagger
from regard.models.tracking.slot_tracker import RecurrentSlotTracker
from regard.models.transfer.classifier import EncoderClassifier
from regard.models.transfer.slot_tracker import EncoderSlotTracker
from regard.models.transfer.tagger import EncoderTagger
from regard.models.transformer import Transformer
from regard.models.transformer_xl import TransformerXL
from regard.models.vit import ViT, ViTClassifier

TRANSLATORS: dict[str, type[Seq2Seq] | type[Transformer] | type[ConvSeq2Seq] | type[NTM]] = {
    "seq2seq": Seq2Seq,
    "transformer": Transformer,
    "conv": ConvSeq2Seq,
    "ntm": NTM,
}
LANGUAGE_MODELS: dict[str, type[LanguageModel]] = {
    "gpt2": GPT2,
    "transformer-xl": TransformerXL,
    "llama": Llama,
    "recurrent-language-model": RecurrentLanguageModel,
}
MODELS: dict[str, type[nn.Module]] = {
    **TRANSLATORS,
    **LANGUAGE_MODELS,
    "bert": BERT,
    "vit": ViT,
    "convnet": ConvNet,
    "rows": RowReader,
    "mlp": MLP,
    "clip-attention": ClipAttention,
    "clip-convnet": ClipConvNet,
    "clip-cell": ClipCell,
    "space-time": SpaceTimeEncoder,
    "ram": RAM,
    "show-attend-tell": ShowAttendTell,
    "conv-captioner": ConvCaptioner,
    "listen-attend-spell": ListenAttendSpell,
    "speech-transformer": SpeechTransformer,
    "sagan": SelfAttentionGAN,
    "self-attentive": SelfAttentive,
    "hierarchical": HierarchicalAttention,
    "bag-of-words": BagOfWords,
    "recurrent-tagger": RecurrentTagger,
    "transformer-tagger": TransformerTagger,
    "window-tagger": WindowTagger,
    "encoder-classifier": EncoderClassifier,
    "encoder-tagger": EncoderTagger,
    "memn2n": MemN2N,
    "agent": Agent,
    "bidaf": BiDAF,
    "decomposable": Decomposable,
    "esim": ESIM,
    "deep-attention": DeepAttentionMatching,
    "flat": FlatResponder,
    "hran": HRAN,
    "slot-tracker": RecurrentSlotTracker,
    "encoder-slot-tracker": EncoderSlotTracker,
}

__all__ = [
    "Agent",
    "BERT",
    "ESIM",
    "GPT2",
    "HRAN",
    "LANGUAGE_MODELS",
    "MODELS",
    "NTM",
    "RAM",
    "RecurrentTagger",
    "TRANSLATORS",
    "BERTClassifier",
    "BERTMaskedLM",
    "BagOfWords",
    "BiDAF",
    "ClipAttention",
    "ClipCell",
    "ClipConvNet",
    "ConvCaptioner",
    "ConvNet",
    "ConvSeq2Seq",
    "EncoderClassifier",
    "EncoderSlotTracker",
    "EncoderTagger",
    "Decomposable",
    "DeepAttentionMatching",
    "FlatResponder",
    "HierarchicalAttention",
    "ListenAttendSpell",
    "Llama",
    "MemN2N",
    "RecurrentLanguageModel",
    "RecurrentSlotTracker",
    "RowReader",
    "SelfAttentionGAN",
    "SelfAttentive",
    "Seq2Seq",
    "ShowAttendTell",
    "SpaceTimeEncoder",
    "SpeechTransformer",
    "Transformer",
    "TransformerTagger",
    "TransformerXL",
    "ViT",
    "ViTClassifier",
    "WindowTagger",
]
