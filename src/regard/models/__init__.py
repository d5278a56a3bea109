"""Landmark models, one per file."""

from torch import nn

from regard.models.acting.agent import Agent as Agent
from regard.models.bag_of_words import BagOfWords as BagOfWords
from regard.models.bert import BERT as BERT, BERTClassifier as BERTClassifier, BERTMaskedLM as BERTMaskedLM
from regard.models.clips.clip_attention import ClipAttention as ClipAttention
from regard.models.clips.clip_cell import ClipCell as ClipCell
from regard.models.clips.clip_convnet import ClipConvNet as ClipConvNet
from regard.models.clips.space_time import SpaceTimeEncoder as SpaceTimeEncoder
from regard.models.conv.captioner import ConvCaptioner as ConvCaptioner
from regard.models.conv.seq2seq import ConvSeq2Seq as ConvSeq2Seq
from regard.models.convnet import ConvNet as ConvNet
from regard.models.decoders.gemma3 import Gemma3 as Gemma3
from regard.models.decoders.gpt_neox import GPTNeoX as GPTNeoX
from regard.models.decoders.llama import Llama as Llama
from regard.models.decoders.phi3 import Phi3 as Phi3
from regard.models.decoders.qwen3 import Qwen3 as Qwen3
from regard.models.gpt2 import GPT2 as GPT2
from regard.models.graphs.graph_attention_network import GraphAttentionNetwork as GraphAttentionNetwork
from regard.models.hierarchical import HierarchicalAttention as HierarchicalAttention
from regard.models.language_model import LanguageModel
from regard.models.listening.listen_attend_spell import ListenAttendSpell as ListenAttendSpell
from regard.models.listening.speech_transformer import SpeechTransformer as SpeechTransformer
from regard.models.matching.decomposable import Decomposable as Decomposable
from regard.models.matching.deep_attention_matching import DeepAttentionMatching as DeepAttentionMatching
from regard.models.matching.esim import ESIM as ESIM
from regard.models.memory.ntm import NTM as NTM
from regard.models.mlp import MLP as MLP
from regard.models.pointing.pointer_network import PointerNetwork as PointerNetwork
from regard.models.ram import RAM as RAM
from regard.models.reading.bidaf import BiDAF as BiDAF
from regard.models.reading.memn2n import MemN2N as MemN2N
from regard.models.recurrent_language_model import RecurrentLanguageModel as RecurrentLanguageModel
from regard.models.responding.flat import FlatResponder as FlatResponder
from regard.models.responding.hran import HRAN as HRAN
from regard.models.row_reader import RowReader as RowReader
from regard.models.sagan import SelfAttentionGAN as SelfAttentionGAN
from regard.models.self_attentive import SelfAttentive as SelfAttentive
from regard.models.seq2seq import Seq2Seq as Seq2Seq
from regard.models.show_attend_tell.model import ShowAttendTell as ShowAttendTell
from regard.models.tagger import (
    RecurrentTagger as RecurrentTagger,
    TransformerTagger as TransformerTagger,
    WindowTagger as WindowTagger,
)
from regard.models.tracking.slot_tracker import RecurrentSlotTracker as RecurrentSlotTracker
from regard.models.transfer.classifier import EncoderClassifier as EncoderClassifier
from regard.models.transfer.slot_tracker import EncoderSlotTracker as EncoderSlotTracker
from regard.models.transfer.tagger import EncoderTagger as EncoderTagger
from regard.models.transformer import Transformer as Transformer
from regard.models.transformer_xl import TransformerXL as TransformerXL
from regard.models.universal.universal_transformer import UniversalTransformer as UniversalTransformer
from regard.models.vision.draw import DRAW as DRAW
from regard.models.vision.spatial_transformer import SpatialTransformerNetwork as SpatialTransformerNetwork
from regard.models.vit import ViT as ViT, ViTClassifier as ViTClassifier

TRANSLATORS: dict[
    str,
    type[Seq2Seq]
    | type[Transformer]
    | type[UniversalTransformer]
    | type[ConvSeq2Seq]
    | type[NTM]
    | type[PointerNetwork],
] = {
    "seq2seq": Seq2Seq,
    "transformer": Transformer,
    "conv": ConvSeq2Seq,
    "ntm": NTM,
    "pointer": PointerNetwork,
    "universal": UniversalTransformer,
}
LANGUAGE_MODELS: dict[str, type[LanguageModel]] = {
    "gpt2": GPT2,
    "transformer-xl": TransformerXL,
    "llama": Llama,
    "qwen3": Qwen3,
    "phi3": Phi3,
    "gemma3": Gemma3,
    "gpt-neox": GPTNeoX,
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
    "stn": SpatialTransformerNetwork,
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
    "draw": DRAW,
    "self-attentive": SelfAttentive,
    "hierarchical": HierarchicalAttention,
    "bag-of-words": BagOfWords,
    "recurrent-tagger": RecurrentTagger,
    "transformer-tagger": TransformerTagger,
    "window-tagger": WindowTagger,
    "encoder-classifier": EncoderClassifier,
    "encoder-tagger": EncoderTagger,
    "graph-attention": GraphAttentionNetwork,
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
