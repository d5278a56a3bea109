"""A Transformer of regard as a model of CTranslate2: the specification with our weights, and the folder that it reads.

    write_model(model, folder, source_tokens, target_tokens)      then ctranslate2.Translator(str(folder))

The folder is complete: weights, vocabularies and configuration. It depends on the model alone, not on a benchmark.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.attn.layer import Attention
from regard.attn.multihead import MultiHead
from regard.attn.terms.normalizer import Softmax
from regard.attn.terms.position import LearnedPositions, Sinusoidal
from regard.attn.terms.read import WeightedSum
from regard.attn.terms.score import Dot
from regard.layers.transformer import FeedForward, Sublayer
from regard.models.transformer import Transformer

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec  # type: ignore[import-not-found]

# positions that are written for sinusoids, which have no table of their own
LONGEST = 512


def write_model(
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
    specification.validate()
    folder.mkdir(parents=True, exist_ok=True)
    specification.save(str(folder))


def transformer_specification(model: Transformer) -> "TransformerSpec":
    """The specification of CTranslate2 with the weights of the model; raises for a model that it cannot express."""
    from ctranslate2.specs import TransformerSpec

    if reason := unsupported_reason(model):
        raise ValueError(f"CTranslate2 cannot express this Transformer: {reason}; build it with other options")
    first: Any = model.encoder[0]
    specification = TransformerSpec.from_config(
        (len(model.encoder), len(model.decoder)),
        first.attention.heads,
        pre_norm=first.around_attention.norm_first,
    )
    _fill_embeddings(specification.encoder, specification.encoder.embeddings[0], model.source, model.source_place)
    _fill_embeddings(specification.decoder, specification.decoder.embeddings, model.target, model.target_place)
    for layer, spec in zip(model.encoder, specification.encoder.layer, strict=True):
        _fill_self_attention(spec.self_attention, layer.attention, layer.around_attention)
        _fill_feed(spec.ffn, layer.feed, layer.around_feed)
    for layer, spec in zip(model.decoder, specification.decoder.layer, strict=True):
        _fill_self_attention(spec.self_attention, layer.self_attention, layer.around_self)
        _fill_cross_attention(spec.attention, layer.cross_attention, layer.around_cross)
        _fill_feed(spec.ffn, layer.feed, layer.around_feed)
    for norm, spec in ((model.source_norm, specification.encoder), (model.target_norm, specification.decoder)):
        if isinstance(norm, nn.LayerNorm):
            _fill_norm(spec.layer_norm, norm)
    _fill_linear(specification.decoder.projection, model.output.weight, model.output.bias)
    return specification


def unsupported_reason(model: Transformer) -> str | None:
    """Why CTranslate2 cannot express the model; None if it can."""
    if any(module.activation is not torch.relu_ for module in model.modules() if isinstance(module, FeedForward)):
        return "its activation is not relu, the only one that is written"
    if model.scale != math.sqrt(model.width):
        return f"its embeddings are multiplied by {model.scale:g}, not by the root of the width"
    if not isinstance(model.source_place, Sinusoidal | LearnedPositions):
        return "its positions are rotary, which are written for decoders without a source only"
    for module in model.modules():
        if isinstance(module, MultiHead) and not _is_plain(module.attention):
            return f"its heads attend by {module.attention!r}, not by scaled dot products"
    return None


def _is_plain(attention: nn.Module) -> bool:
    is_dot = isinstance(attention, Attention) and type(attention.score) is Dot and attention.score.scale is None
    if not is_dot or not isinstance(attention, Attention):
        return False
    is_softmax = type(attention.normalize) is Softmax and attention.normalize.temperature == 1.0
    has_rest = attention.bias is not None or attention.mask is not None or type(attention.read) is not WeightedSum
    return is_softmax and not has_rest


def _numpy(t: Tensor) -> Any:
    return t.detach().float().cpu().contiguous().numpy()


def _fill_linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _numpy(weight)
    if bias is not None:
        spec.bias = _numpy(bias)


def _fill_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _numpy(norm.weight), _numpy(norm.bias)


def _fill_embeddings(spec: Any, embeddings: Any, table: nn.Embedding, place: nn.Module) -> None:
    embeddings.weight = _numpy(table.weight)
    if isinstance(place, LearnedPositions):
        encodings = place.table.weight
    else:
        assert isinstance(place, Sinusoidal)
        encodings = place.encoding(torch.arange(LONGEST))
    spec.position_encodings.encodings = _numpy(encodings)


def _joined(*linears: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """The weights and biases of linear layers, one below the other."""
    biases = [linear.bias for linear in linears]
    return torch.cat([linear.weight for linear in linears]), None if biases[0] is None else torch.cat(biases)


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
