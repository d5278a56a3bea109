"""load_pretrained and save_pretrained: folders in transformers' layout as models of regard, and back.

ARCHITECTURES is the one list of supported classes of transformers; `architectures[0]` of a config.json chooses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.common import checks, memory
from regard.models.bert import BERT, BERTClassifier, BERTMaskedLM
from regard.models.decoders.gemma3 import Gemma3
from regard.models.decoders.gpt_neox import GPTNeoX
from regard.models.decoders.llama import Llama
from regard.models.decoders.phi3 import Phi3
from regard.models.decoders.qwen3 import Qwen3
from regard.models.gpt2 import GPT2
from regard.models.pretrained.architecture import Architecture, check_layers
from regard.models.pretrained.bert import BERT_ARCHITECTURES
from regard.models.pretrained.decoders.gemma3 import GEMMA3_ARCHITECTURES
from regard.models.pretrained.decoders.gpt_neox import GPT_NEOX_ARCHITECTURES
from regard.models.pretrained.decoders.llama import LLAMA_ARCHITECTURES
from regard.models.pretrained.decoders.phi3 import PHI3_ARCHITECTURES
from regard.models.pretrained.decoders.qwen3 import QWEN3_ARCHITECTURES
from regard.models.pretrained.folder import CONFIG, CheckpointConfig, read_config, read_tensors, write_folder
from regard.models.pretrained.gpt2 import GPT2_ARCHITECTURES
from regard.models.pretrained.marian import MARIAN_ARCHITECTURES
from regard.models.pretrained.pegasus import PRE_NORM_ARCHITECTURES
from regard.models.pretrained.sentencepiece_files import MarianTokenizer, load_marian_tokenizer
from regard.models.pretrained.tensor_map import (
    check_copies,
    check_tensors,
    load_tensors,
    resolve_aliases,
    unused_tensors,
)
from regard.models.pretrained.tokenizer_files import load_tokenizer
from regard.models.pretrained.translator_layout import in_layout, translator_class
from regard.models.pretrained.vit import VIT_ARCHITECTURES
from regard.models.transformer import Transformer
from regard.models.vit import ViT, ViTClassifier

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ARCHITECTURES: dict[str, Architecture] = {
    **BERT_ARCHITECTURES,
    **GPT2_ARCHITECTURES,
    **LLAMA_ARCHITECTURES,
    **QWEN3_ARCHITECTURES,
    **PHI3_ARCHITECTURES,
    **GEMMA3_ARCHITECTURES,
    **GPT_NEOX_ARCHITECTURES,
    **MARIAN_ARCHITECTURES,
    **PRE_NORM_ARCHITECTURES,
    **VIT_ARCHITECTURES,
}

# the classes of transformers that a model is saved as; of several, the one that has its norms and positions
SAVED_AS: dict[type[nn.Module], tuple[str, ...]] = {
    BERT: ("BertModel",),
    BERTMaskedLM: ("BertForMaskedLM",),
    BERTClassifier: ("BertForSequenceClassification",),
    GPT2: ("GPT2LMHeadModel",),
    Llama: ("LlamaForCausalLM",),
    Qwen3: ("Qwen3ForCausalLM",),
    Phi3: ("Phi3ForCausalLM",),
    Gemma3: ("Gemma3ForCausalLM",),
    GPTNeoX: ("GPTNeoXForCausalLM",),
    Transformer: ("MarianMTModel", "PegasusForConditionalGeneration", "BlenderbotForConditionalGeneration"),
    ViT: ("ViTModel",),
    ViTClassifier: ("ViTForImageClassification",),
}
# entries of config.json that belong to a model, and that its caller may know better
_NAMED = ("id2label", "label2id", "decoder_start_token_id")


@dataclass(frozen=True, eq=False)
class PretrainedModel:
    """A model with the weights of a folder."""

    model: nn.Module  # in evaluation mode, in float32
    architecture: str  # its name in transformers
    task: str | None  # the task of the model; None: a part of other models
    config: CheckpointConfig
    unused: tuple[str, ...]  # tensors of the folder that the model has no place for, such as other heads

    def load_tokenizer(self) -> "Tokenizer | MarianTokenizer":
        """The tokenizer of the folder, whose ids all have a row in the embedding."""
        is_marian = self.architecture in MARIAN_ARCHITECTURES
        return load_marian_tokenizer(self.config) if is_marian else load_tokenizer(self.config)


def load_pretrained(folder: str | Path, architecture: str | None = None) -> PretrainedModel:
    """The model of a folder in transformers' layout; nothing is fetched and no code of the folder is run.

    Weights are safetensors, or pickles of tensors alone. Everything is checked before a model is returned.
    `architecture` is a name of ARCHITECTURES instead of that in config.json, which old files do not have: "BertModel"
    loads the encoder of any BERT.
    """
    config = read_config(Path(folder))
    name = architecture_name(config) if architecture is None else architecture
    checks.known("architecture", name, ARCHITECTURES)
    kind = ARCHITECTURES[name]
    config.refuse_quantized()
    tensors = {kind.rename(key): tensor for key, tensor in read_tensors(config.folder).items()}
    names = frozenset(tensors)
    check_layers(kind, config, names)
    shapes = _build_shapes(kind, config, names)
    maps, aliases = kind.maps(shapes), kind.aliases(shapes)
    resolve_aliases(tensors, aliases, config.folder)
    check_tensors(shapes, tensors, maps, config.folder)
    check_copies(tensors, aliases, config.folder)
    # positions may be computed, so that no tensor bounds their number
    size = sum(tensor.nbytes for tensor in shapes.state_dict(keep_vars=True).values())
    memory.check_fits(size, f"the model of {config.folder}", "take a smaller checkpoint")
    model = kind.build(config, names)
    load_tensors(model, tensors, maps)
    kind.prepare(model)
    unused = unused_tensors(tensors, maps, kind.buffers)
    return PretrainedModel(model.eval(), name, kind.task, config, unused)


def _build_shapes(kind: Architecture, config: CheckpointConfig, names: frozenset[str]) -> nn.Module:
    """The model without numbers: the sizes of the config are checked before any memory is taken."""
    try:
        with torch.device("meta"):
            return kind.build(config, names)
    except (RuntimeError, TypeError, ArithmeticError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"the sizes in {config.folder / CONFIG} make no model ({reason}); restore the config.json of these weights"
        ) from error


def architecture_name(config: CheckpointConfig) -> str:
    """The name of ARCHITECTURES that a config.json begins its `architectures` with."""
    names = config.values.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if name is None:
        raise ValueError(
            f'{config.folder / CONFIG} names no architecture; write "architectures": ["…"] into it, with one of '
            f"{', '.join(ARCHITECTURES)}, or pass it to load_pretrained"
        )
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise ValueError(
            f"{config.folder / CONFIG} names the architecture {name!r}, and regard loads {', '.join(ARCHITECTURES)}; "
            "name a folder of one of these"
        )
    return str(name)


def save_pretrained(model: nn.Module, folder: str | Path, config: Mapping[str, Any] | None = None) -> None:
    """Writes a model of regard as config.json and model.safetensors, which transformers and load_pretrained read.

    `config` has further entries of config.json, such as names of classes (id2label, label2id) and ids of special
    tokens; those that describe the model come from the model.
    """
    if type(model) not in SAVED_AS:
        names = ", ".join(kind.__name__ for kind in SAVED_AS)
        raise TypeError(f"model must be one of {names} to be saved in transformers' layout, got {type(model).__name__}")
    if isinstance(model, Transformer):
        model = in_layout(model)
    architecture = ARCHITECTURES[saved_as(model)]
    values, overrides = architecture.config(model), dict(config or {})
    for key in _NAMED:
        if "label" in key and key in overrides and len(overrides[key]) != len(values.get(key, overrides[key])):
            raise ValueError(
                f"{key} must name {len(values[key])} classes, got {len(overrides[key])}; name each class once"
            )
        values.update({key: overrides[key]} if key in overrides else {})
    if values.get("pad_token_id", 0) is None and "pad_token_id" in overrides:  # decoders need none
        del values["pad_token_id"]
    parameters = {name: p.detach() for name, p in model.state_dict(keep_vars=True).items()}
    tensors = {
        tensor_map.theirs.removeprefix(architecture.strip): tensor_map.join(parameters)
        for tensor_map in architecture.maps(model)
    }
    write_folder(Path(folder), {**overrides, **values}, tensors)


def saved_as(model: nn.Module) -> str:
    """The class of transformers that a model of SAVED_AS is saved as."""
    return translator_class(in_layout(model)) if isinstance(model, Transformer) else SAVED_AS[type(model)][0]
