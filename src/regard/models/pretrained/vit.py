"""ViT in transformers' layout: ViTModel and ViTForImageClassification."""

import re
from typing import Any

from regard.layers.transformer import EncoderLayer
from regard.models.pretrained.architecture import (
    Architecture,
    activation_name,
    activation_of,
    check_writable,
    layer_sizes,
)
from regard.models.pretrained.folder import CONFIG, CheckpointConfig
from regard.models.pretrained.tensor_map import TensorMap, layer_maps, linear_maps
from regard.models.vit import ViT, ViTClassifier


def rename(name: str) -> str:
    """With the prefix `vit.`, which bare models do not have."""
    return f"vit.{name}" if re.match(r"(embeddings|encoder|layernorm|pooler)\.", name) else name


def build_encoder(config: CheckpointConfig, names: frozenset[str], *, pooler: bool | None = None) -> ViT:
    config.refuse(qkv_bias=True, pooler_act="tanh", pooler_output_size=config.integer("hidden_size"))
    return ViT(
        _image_size(config),
        patch=config.integer("patch_size"),
        channels=config.integer("num_channels", 3),
        width=config.integer("hidden_size"),
        layers=config.integer("num_hidden_layers"),
        heads=config.integer("num_attention_heads"),
        feed=config.integer("intermediate_size"),
        activation=activation_of(config, "hidden_act", "gelu"),
        eps=config.epsilon("layer_norm_eps", 1e-12),
        pooler="vit.pooler.dense.weight" in names if pooler is None else pooler,
        dropout=config.number("hidden_dropout_prob", 0.0),
    )


def _image_size(config: CheckpointConfig) -> int | tuple[int, int]:
    size = config.values.get("image_size")
    if isinstance(size, list):
        if len(size) != 2 or not all(isinstance(n, int) for n in size):
            raise ValueError(f"image_size of {config.folder / CONFIG} must be one or two numbers; correct the file")
        return size[0], size[1]
    return config.integer("image_size")


def build_classifier(config: CheckpointConfig, names: frozenset[str]) -> ViTClassifier:
    classes = config.integer("num_labels", len(config.values.get("id2label") or {}) or 2)
    return ViTClassifier(build_encoder(config, names, pooler=False), classes)


def encoder_maps(model: ViT, ours: str = "") -> list[TensorMap]:
    """`ours` is the name of the encoder in the model, with a dot."""
    return [
        TensorMap("vit.embeddings.cls_token", (f"{ours}class_token",), axes=2),
        TensorMap("vit.embeddings.position_embeddings", (f"{ours}place.table.weight",), axes=1),
        *linear_maps([("vit.embeddings.patch_embeddings.projection", f"{ours}patches")]),
        *linear_maps([("vit.layernorm", f"{ours}norm")]),
        *layer_maps(model, "vit", ours, "attention", ("layernorm_before", "layernorm_after")),
    ]


def classifier_maps(model: ViTClassifier) -> list[TensorMap]:
    return [*encoder_maps(model.encoder, "encoder."), *linear_maps([("classifier", "output")])]


def encoder_config(model: ViT) -> dict[str, Any]:
    check_writable(model, positions=("learned", model.positions.name))
    layer, (height, width) = model.layers[0], model.image
    assert isinstance(layer, EncoderLayer)
    return {
        "architectures": ["ViTModel"],
        "model_type": "vit",
        "image_size": height if height == width else [height, width],
        "patch_size": model.patches.kernel_size[0],
        "num_channels": model.patches.in_channels,
        "hidden_size": model.width,
        "num_hidden_layers": len(model.layers),
        **layer_sizes(layer),
        "hidden_act": activation_name(layer.feed.activation),  # type: ignore[arg-type]
        "hidden_dropout_prob": model.dropout.p,
        "layer_norm_eps": model.norm.eps,
    }


def classifier_config(model: ViTClassifier) -> dict[str, Any]:
    labels = {str(n): f"LABEL_{n}" for n in range(model.output.out_features)}
    return {
        **encoder_config(model.encoder),
        "architectures": ["ViTForImageClassification"],
        "id2label": labels,
        "label2id": {label: int(n) for n, label in labels.items()},
    }


_LAYERS = {"vit.encoder.layer": "num_hidden_layers"}
VIT_ARCHITECTURES = {
    "ViTModel": Architecture(None, build_encoder, encoder_maps, encoder_config, rename, layers=_LAYERS, strip="vit."),
    "ViTForImageClassification": Architecture(
        "classify-image", build_classifier, classifier_maps, classifier_config, rename, layers=_LAYERS
    ),
}
