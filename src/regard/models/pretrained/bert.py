"""BERT in transformers' layout: BertModel, BertForMaskedLM, BertForPreTraining, BertForSequenceClassification."""

import re
from typing import Any

from torch import nn

from regard.layers.transformer import EncoderLayer
from regard.models.bert import BERT, BERTClassifier, BERTMaskedLM
from regard.models.pretrained.architecture import (
    Architecture,
    activation_name,
    activation_of,
    check_writable,
    layer_sizes,
)
from regard.models.pretrained.folder import CheckpointConfig
from regard.models.pretrained.tensor_map import TensorMap, layer_maps, linear_maps

_ENCODER = re.compile(r"(embeddings|encoder|pooler)\.")


def rename(name: str) -> str:
    """The name of today: encoders with the prefix `bert.`, norms with weight and bias instead of gamma and beta."""
    name = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
    return f"bert.{name}" if _ENCODER.match(name) else name


def build_encoder(config: CheckpointConfig, names: frozenset[str], *, pooler: bool | None = None) -> BERT:
    """`pooler`: None has one if the checkpoint does."""
    config.refuse(position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    return BERT(
        config.integer("vocab_size"),
        width=config.integer("hidden_size"),
        layers=config.integer("num_hidden_layers"),
        heads=config.integer("num_attention_heads"),
        feed=config.integer("intermediate_size"),
        longest=config.integer("max_position_embeddings"),
        types=config.integer("type_vocab_size", 2),
        activation=activation_of(config, "hidden_act", "gelu"),
        eps=config.epsilon("layer_norm_eps", 1e-12),
        pooler="bert.pooler.dense.weight" in names if pooler is None else pooler,
        dropout=config.number("hidden_dropout_prob", 0.1),
    )


def build_masked_lm(config: CheckpointConfig, names: frozenset[str]) -> BERTMaskedLM:
    # the pooler of BertForPreTraining belongs to its next-sentence head
    encoder = build_encoder(config, names, pooler=False)
    activation, eps = activation_of(config, "hidden_act", "gelu"), config.epsilon("layer_norm_eps", 1e-12)
    return BERTMaskedLM(encoder, activation=activation, eps=eps)


def build_classifier(config: CheckpointConfig, names: frozenset[str]) -> BERTClassifier:
    classes = config.integer("num_labels", len(config.values.get("id2label") or {}) or 2)
    dropout = config.number("classifier_dropout", config.number("hidden_dropout_prob", 0.1))
    return BERTClassifier(build_encoder(config, names, pooler=True), classes, dropout=dropout)


def encoder_maps(model: BERT, ours: str = "") -> list[TensorMap]:
    """`ours` is the name of the encoder in the model, with a dot."""
    return [
        TensorMap("bert.embeddings.word_embeddings.weight", (f"{ours}embedding.weight",)),
        TensorMap("bert.embeddings.position_embeddings.weight", (f"{ours}place.table.weight",)),
        TensorMap("bert.embeddings.token_type_embeddings.weight", (f"{ours}types.weight",)),
        *linear_maps([("bert.embeddings.LayerNorm", f"{ours}embedding_norm")]),
        *layer_maps(model, "bert", ours, "self", ("attention.output.LayerNorm", "output.LayerNorm")),
    ]


def masked_lm_maps(model: BERTMaskedLM) -> list[TensorMap]:
    head = [
        ("cls.predictions.transform.dense", "transform"),
        ("cls.predictions.transform.LayerNorm", "norm"),
    ]
    bias = TensorMap("cls.predictions.bias", ("output.bias",))
    return [*encoder_maps(model.encoder, "encoder."), *linear_maps(head), bias]


def classifier_maps(model: BERTClassifier) -> list[TensorMap]:
    return [*encoder_maps(model.encoder, "encoder."), *linear_maps([("classifier", "output")])]


def encoder_config(model: BERT) -> dict[str, Any]:
    norm = "post" if isinstance(model.norm, nn.Identity) else "pre"
    check_writable(model, positions=("learned", model.positions.name), norm=("post", norm))
    layer = model.layers[0]
    assert isinstance(layer, EncoderLayer)
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": model.embedding.num_embeddings,
        "hidden_size": model.width,
        "num_hidden_layers": len(model.layers),
        **layer_sizes(layer),
        "max_position_embeddings": model.positions.longest,
        "type_vocab_size": model.types.num_embeddings,
        "hidden_act": activation_name(layer.feed.activation),  # type: ignore[arg-type]
        "hidden_dropout_prob": model.dropout.p,
        "layer_norm_eps": model.embedding_norm.eps,
    }


def masked_lm_config(model: BERTMaskedLM) -> dict[str, Any]:
    return {**encoder_config(model.encoder), "architectures": ["BertForMaskedLM"]}


def classifier_config(model: BERTClassifier) -> dict[str, Any]:
    labels = {str(n): f"LABEL_{n}" for n in range(model.output.out_features)}
    return {
        **encoder_config(model.encoder),
        "architectures": ["BertForSequenceClassification"],
        "id2label": labels,
        "label2id": {label: int(n) for n, label in labels.items()},
        "classifier_dropout": model.dropout.p,
    }


def _masked_lm_aliases(model: BERTMaskedLM) -> dict[str, str]:
    return {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }


_LAYERS = {"bert.encoder.layer": "num_hidden_layers"}
_BUFFERS = r"bert\.embeddings\.(position_ids|token_type_ids)"
_MASKED_LM = Architecture(
    "masked-lm", build_masked_lm, masked_lm_maps, masked_lm_config, rename, _masked_lm_aliases, _LAYERS, _BUFFERS
)
BERT_ARCHITECTURES = {
    "BertModel": Architecture(
        "embed", build_encoder, encoder_maps, encoder_config, rename, layers=_LAYERS, buffers=_BUFFERS, strip="bert."
    ),
    "BertForMaskedLM": _MASKED_LM,
    "BertForPreTraining": _MASKED_LM,
    "BertForSequenceClassification": Architecture(
        "classify-text", build_classifier, classifier_maps, classifier_config, rename, layers=_LAYERS, buffers=_BUFFERS
    ),
}
