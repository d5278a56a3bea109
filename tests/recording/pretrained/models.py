"""Tiny models of random weights, saved as transformers saves them."""

from pathlib import Path
from typing import Any

import torch

PIECES = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "the", "cat", "##s", "sat", "on", "mat", "un", "##happi", "##ly", "."]
TEXT = "the cats sat unhappily on the mat."
READ = ["[CLS]", "the", "cat", "##s", "sat", "un", "##happi", "##ly", "on", "the", "mat", ".", "[SEP]"]


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordPiece({piece: n for n, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [("[CLS]", PIECES.index("[CLS]")), ("[SEP]", PIECES.index("[SEP]"))]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]")


def bert() -> Any:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
    return BertModel(BertConfig(vocab_size=len(PIECES), max_position_embeddings=16, **sizes))


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 16}
    return GPT2LMHeadModel(GPT2Config(vocab_size=len(PIECES), bos_token_id=2, eos_token_id=3, **sizes))


def t5() -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 24, "d_kv": 8, "d_ff": 20, "num_layers": 2, "num_heads": 3}
    known = {"pad_token_id": 1, "eos_token_id": 3, "decoder_start_token_id": 1}
    return T5ForConditionalGeneration(T5Config(vocab_size=len(PIECES), **sizes, **known))


MODELS = {"bert": bert, "gpt2": gpt2, "t5": t5}


def vit(folder: Path) -> Path:
    """A classifier of images and its processor in a folder."""
    import transformers
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil

    transformers.logging.disable_progress_bar()
    torch.manual_seed(7)
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 16}
    names = {0: "cat", 1: "dog", 2: "owl"}
    config = ViTConfig(**sizes, image_size=24, patch_size=8, num_labels=3, id2label=names)
    ViTForImageClassification(config).save_pretrained(folder)
    ViTImageProcessorPil(size={"height": 24, "width": 24}).save_pretrained(folder)
    return folder


def saved(name: str, folder: Path) -> Path:
    """A model and its tokenizer in a folder."""
    import transformers

    transformers.logging.disable_progress_bar()
    torch.manual_seed(7)
    MODELS[name]().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder
