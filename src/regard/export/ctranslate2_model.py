"""Transformers, GPT-2 and BERT of regard as specifications of CTranslate2, with their weights.

    write_translator(model, folder, source_tokens, target_tokens, …)      then ctranslate2.Translator(str(folder))
    write_decoder(gpt2, folder, tokens, …)                                     ctranslate2.Generator(str(folder))
    write_encoder(bert, folder, tokens, …)                                     ctranslate2.Encoder(str(folder))

A folder is complete: weights, vocabularies and configuration.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.attn.multihead import MultiHead
from regard.export.plain_attention import check_plain, position_table
from regard.layers.transformer import FeedForward, Sublayer
from regard.models.bert import BERT
from regard.models.gpt2 import GPT2
from regard.models.pretrained.architecture import activation_name
from regard.models.transformer import Transformer

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec

# positions that are written for sinusoids
LONGEST = 512
_FORMAT = "CTranslate2"
# the activations of CTranslate2 by their names in transformers
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_new": "GELUTanh", "silu": "SWISH", "tanh": "Tanh"}


def write_translator(
    model: Transformer,
    folder: Path,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    *,
    bos: str,
    eos: str,
    unk: str,
) -> None:
    """Writes the folder that `ctranslate2.Translator` reads; the decoder starts with `bos`."""
    specification = transformer_specification(model)
    specification.register_source_vocabulary(list(source_tokens))
    specification.register_target_vocabulary(list(target_tokens))
    config = specification.config
    config.bos_token, config.eos_token, config.unk_token, config.decoder_start_token = bos, eos, unk, bos
    config.add_source_bos = config.add_source_eos = False
    _save(specification, folder)


def _save(specification: Any, folder: Path) -> None:
    specification.validate()
    folder.mkdir(parents=True, exist_ok=True)
    specification.save(str(folder))


def write_decoder(model: GPT2, folder: Path, tokens: Sequence[str], *, bos: str, eos: str, unk: str) -> None:
    """Writes the folder that `ctranslate2.Generator` reads."""
    from ctranslate2.specs import TransformerDecoderModelSpec

    check_plain(_FORMAT, model, model.place)
    layers: Any = model.stack.layers
    specification = TransformerDecoderModelSpec.from_config(
        len(layers), layers[0].attention.heads, pre_norm=True, activation=_activation(layers[0].feed)
    )
    decoder = specification.decoder
    decoder.scale_embeddings = False
    _fill_embeddings(decoder, decoder.embeddings, model.embedding, model.place)
    for layer, spec in zip(layers, decoder.layer, strict=True):
        _fill_encoder_layer(spec, layer)
    _fill_norm(decoder.layer_norm, model.stack.norm)  # type: ignore[arg-type]
    _fill_linear(decoder.projection, model.output.weight, model.output.bias)
    specification.register_vocabulary(list(tokens))
    config = specification.config
    config.bos_token, config.eos_token, config.unk_token = bos, eos, unk
    config.layer_norm_epsilon = model.stack.norm.eps
    _save(specification, folder)


def write_encoder(model: BERT, folder: Path, tokens: Sequence[str], *, unk: str) -> None:
    """Writes the folder that `ctranslate2.Encoder` reads; its results are the states of the last layer."""
    from ctranslate2.specs import TransformerEncoderModelSpec
    from ctranslate2.specs.common_spec import EmbeddingsMerge
    from ctranslate2.specs.transformer_spec import TransformerEncoderSpec

    check_plain(_FORMAT, model, model.place)
    layers: Any = model.layers
    if layers[0].around_attention.norm_first:
        raise ValueError(
            "CTranslate2 cannot express this BERT: its norms stand before its sublayers; train it post-norm"
        )
    encoder = TransformerEncoderSpec(
        len(layers),
        layers[0].attention.heads,
        pre_norm=False,
        activation=_activation(layers[0].feed),
        layernorm_embedding=True,
        num_source_embeddings=2,
        embeddings_merge=EmbeddingsMerge.ADD,
    )
    encoder.scale_embeddings = False
    _fill_embeddings(encoder, encoder.embeddings[0], model.embedding, model.place)
    encoder.embeddings[1].weight = _numpy(model.types.weight)
    _fill_norm(encoder.layernorm_embedding, model.embedding_norm)
    for layer, spec in zip(layers, encoder.layer, strict=True):
        _fill_encoder_layer(spec, layer)
    specification = TransformerEncoderModelSpec(encoder)
    specification.register_vocabulary(list(tokens))
    config = specification.config
    config.unk_token, config.layer_norm_epsilon = unk, model.embedding_norm.eps
    _save(specification, folder)


def _activation(feed: FeedForward) -> Any:
    from ctranslate2.specs.common_spec import Activation

    return Activation[_ACTIVATIONS[activation_name(feed.activation)]]


def transformer_specification(model: Transformer) -> "TransformerSpec":
    """The specification of CTranslate2 with the weights of the model; raises for a model that it cannot express."""
    from ctranslate2.specs import TransformerSpec

    check_plain(_FORMAT, model, model.source_place)
    if model.scale not in (math.sqrt(model.width), 1.0):
        raise ValueError(
            f"CTranslate2 cannot express this Transformer: its embeddings are multiplied by {model.scale:g}, not by 1 "
            "or the root of the width; build it with other options"
        )
    first: Any = model.encoder[0]
    specification = TransformerSpec.from_config(
        (len(model.encoder), len(model.decoder)),
        first.attention.heads,
        pre_norm=first.around_attention.norm_first,
        activation=_activation(first.feed),
    )
    specification.encoder.scale_embeddings = specification.decoder.scale_embeddings = model.scale != 1.0
    _fill_embeddings(specification.encoder, specification.encoder.embeddings[0], model.source, model.source_place)
    _fill_embeddings(specification.decoder, specification.decoder.embeddings, model.target, model.target_place)
    for layer, spec in zip(model.encoder, specification.encoder.layer, strict=True):
        _fill_encoder_layer(spec, layer)
    decoder: Any = model.decoder
    for layer, spec in zip(decoder, specification.decoder.layer, strict=True):
        _fill_self_attention(spec.self_attention, layer.self_attention, layer.around_self)
        _fill_cross_attention(spec.attention, layer.cross_attention, layer.around_cross)
        _fill_feed(spec.ffn, layer.feed, layer.around_feed)
    for norm, spec in ((model.source_norm, specification.encoder), (model.target_norm, specification.decoder)):
        if isinstance(norm, nn.LayerNorm):
            _fill_norm(spec.layer_norm, norm)
    _fill_linear(specification.decoder.projection, model.output.weight, model.output.bias)
    return specification


def _numpy(t: Tensor) -> Any:
    return t.detach().float().cpu().contiguous().numpy()


def _fill_linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _numpy(weight)
    if bias is not None:
        spec.bias = _numpy(bias)


def _fill_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _numpy(norm.weight), _numpy(norm.bias)


def _fill_embeddings(spec: Any, embeddings: Any, table: nn.Embedding, place: nn.Module | None) -> None:
    embeddings.weight = _numpy(table.weight)
    spec.position_encodings.encodings = _numpy(position_table(place, LONGEST))


def _joined(*linears: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """The weights and biases of linear layers, one below the other."""
    weight = torch.cat([linear.weight for linear in linears])
    return weight, None if linears[0].bias is None else torch.cat([linear.bias for linear in linears])


def _fill_encoder_layer(spec: Any, layer: Any) -> None:
    _fill_self_attention(spec.self_attention, layer.attention, layer.around_attention)
    _fill_feed(spec.ffn, layer.feed, layer.around_feed)


def _fill_self_attention(spec: Any, heads: MultiHead, around: Sublayer) -> None:
    _fill_linear(spec.linear[0], *_joined(heads.query, heads.key, heads.value))
    _fill_linear(spec.linear[1], *_joined(heads.out))
    _fill_norm(spec.layer_norm, around.norm)  # type: ignore[arg-type]


def _fill_cross_attention(spec: Any, heads: MultiHead, around: Sublayer) -> None:
    _fill_linear(spec.linear[0], *_joined(heads.query))
    _fill_linear(spec.linear[1], *_joined(heads.key, heads.value))
    _fill_linear(spec.linear[2], *_joined(heads.out))
    _fill_norm(spec.layer_norm, around.norm)  # type: ignore[arg-type]


def _fill_feed(spec: Any, feed: FeedForward, around: Sublayer) -> None:
    _fill_linear(spec.linear_0, *_joined(feed.inner))
    _fill_linear(spec.linear_1, *_joined(feed.outer))
    _fill_norm(spec.layer_norm, around.norm)  # type: ignore[arg-type]
