"""The parts that Marian, Pegasus and Blenderbot have in common: names of tensors, entries of config.json, positions."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from regard.attn.terms.position import LearnedPositions, Sinusoidal
from regard.layers.transformer import DecoderLayer, EncoderLayer
from regard.models.pretrained.architecture import activation_name, activation_of, check_writable
from regard.models.pretrained.folder import CheckpointConfig
from regard.models.pretrained.tensor_map import TensorMap, linear_maps
from regard.models.transformer import Transformer

# positions that are written for sinusoids, which have no table of their own
LONGEST = 2048
# the logit of a row that only fills up a vocabulary; its probability is 0
_NEVER = -1e9
# the entries of config.json that hold the numbers of layers
LAYERS = {"model.encoder.layers": "encoder_layers", "model.decoder.layers": "decoder_layers"}
_PROJECTIONS = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}
_ATTENTIONS = {
    "encoder": {"self_attn": ("attention", "around_attention")},
    "decoder": {"self_attn": ("self_attention", "around_self"), "encoder_attn": ("cross_attention", "around_cross")},
}
# the ends of names of parameters whose first axis is the width, and of those whose second axis is
_ROWS = ("out.weight", "out.bias", "outer.weight", "outer.bias", "norm.weight", "norm.bias")
_COLUMNS = ("query.weight", "key.weight", "value.weight", "inner.weight", "source.weight", "target.weight")


def build_translator(
    config: CheckpointConfig, *, norm: str, source_size: int, target_size: int, tied: str, padding: int
) -> Transformer:
    """The Transformer that a config.json describes, with room for a table of positions."""
    feed, heads = config.integer("encoder_ffn_dim"), config.integer("encoder_attention_heads")
    config.refuse(decoder_ffn_dim=feed, decoder_attention_heads=heads)
    return Transformer(
        source_size,
        target_size,
        width=config.integer("d_model"),
        layers=config.integer("encoder_layers"),
        decoder_layers=config.integer("decoder_layers"),
        heads=heads,
        feed=feed,
        norm=norm,
        positions="learned",
        longest=config.integer("max_position_embeddings"),
        activation=activation_of(config, "activation_function", "gelu"),
        scale=None if config.flag("scale_embedding", False) else 1.0,
        dropout=config.number("dropout", 0.1),
        tied=tied,
        padding=padding,
    )


def layer_maps(model: Transformer) -> list[TensorMap]:
    """All layers, and the bias of the vocabulary."""
    result = [TensorMap("final_logits_bias", ("output.bias",), axes=1)]
    for side, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        for n in range(len(layers)):
            theirs, ours = f"model.{side}.layers.{n}", f"{side}.{n}"
            pairs = [
                (f"{theirs}.fc1", f"{ours}.feed.inner"),
                (f"{theirs}.fc2", f"{ours}.feed.outer"),
                (f"{theirs}.final_layer_norm", f"{ours}.around_feed.norm"),
            ]
            for name, (attention, around) in _ATTENTIONS[side].items():
                pairs += [(f"{theirs}.{name}.{t}", f"{ours}.{attention}.{o}") for t, o in _PROJECTIONS.items()]
                pairs.append((f"{theirs}.{name}_layer_norm", f"{ours}.{around}.norm"))
            result += linear_maps(pairs)
    return result


def translator_config(model: Transformer) -> dict[str, Any]:
    """The entries of config.json that the three have."""
    check_writable(model)
    first, last = model.encoder[0], model.decoder[0]
    assert isinstance(first, EncoderLayer)
    assert isinstance(last, DecoderLayer)
    padding = model.target.padding_idx
    return {
        "is_encoder_decoder": True,
        "vocab_size": model.source.num_embeddings,
        "d_model": model.width,
        "encoder_layers": len(model.encoder),
        "decoder_layers": len(model.decoder),
        "encoder_attention_heads": first.attention.heads,
        "decoder_attention_heads": last.self_attention.heads,
        "encoder_ffn_dim": first.feed.inner.out_features,  # type: ignore[union-attr]
        "decoder_ffn_dim": last.feed.inner.out_features,
        "max_position_embeddings": model.longest,
        "activation_function": activation_name(first.feed.activation),  # type: ignore[arg-type]
        "scale_embedding": model.scale != 1.0,
        "dropout": model.dropout.p,
        "pad_token_id": padding,
        "decoder_start_token_id": padding,
    }


def position_table(length: int, width: int) -> Tensor:  # -> "n d"
    """[sin(p ω); cos(p ω)], ω_k = 10000^(−2k/d), computed in float64."""
    rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(length, dtype=torch.float64).unsqueeze(-1) * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1).float()


def has_sinusoids(model: Transformer) -> bool:
    """Whether the tables of positions hold `position_table`, rounded to their type."""
    expected = position_table(model.longest or 1, model.width)
    return all(
        isinstance(place, LearnedPositions)
        and torch.equal(place.table.weight.cpu(), expected.to(place.table.weight.dtype))
        for place in (model.source_place, model.target_place)
    )


@torch.no_grad()
def set_sinusoids(model: Transformer) -> None:
    """Fills the tables of positions, which are constants: they are not trained."""
    for place in (model.source_place, model.target_place):
        assert isinstance(place, LearnedPositions)
        place.table.weight.copy_(position_table(place.table.num_embeddings, model.width))
    freeze_positions(model)


def freeze_positions(model: Transformer) -> None:
    for place in (model.source_place, model.target_place):
        place.requires_grad_(False)


def translator_class(model: Transformer) -> str:
    """The class of transformers with the norms and positions of a model that is `in_layout`."""
    if not is_pre_norm(model):
        return "MarianMTModel"
    return "PegasusForConditionalGeneration" if has_sinusoids(model) else "BlenderbotForConditionalGeneration"


@torch.no_grad()
def in_layout(model: Transformer) -> Transformer:
    """A copy that computes the same, in the form of transformers' classes; the model itself if it has that form.

    Their sinusoids have all sines before all cosines, and ours alternate: the copy has its width in that order. A
    pre-norm class has one size for both vocabularies: rows of zeros fill up the smaller one, and are never predicted.
    """
    _check_expressible(model)
    sizes = (model.source.num_embeddings, model.target.num_embeddings)
    is_pre, is_shared = is_pre_norm(model), model.source is model.target
    is_sinusoidal = isinstance(model.source_place, Sinusoidal)
    if not is_sinusoidal and (sizes[0] == sizes[1] or not is_pre):
        return model
    first: Any = model.encoder[0]
    is_tied = model.output.weight is model.target.weight
    copy = Transformer(
        *((max(sizes),) * 2 if is_pre else sizes),
        width=model.width,
        layers=len(model.encoder),
        decoder_layers=len(model.decoder),
        heads=first.attention.heads,
        feed=first.feed.inner.out_features,
        norm="pre" if is_pre else "post",
        positions="learned",
        longest=model.longest or LONGEST,
        activation=first.feed.activation,
        scale=model.scale,
        dropout=model.dropout.p,
        tied="all" if is_shared else "target" if is_tied else "none",
        padding=model.target.padding_idx or 0,
    )
    copy.to(model.output.weight.dtype).eval()
    even = torch.arange(0, model.width, 2)
    order = torch.cat([even, even + 1]) if is_sinusoidal else torch.arange(model.width)
    for parameter in (copy.source.weight, copy.target.weight, copy.output.weight):
        parameter.zero_()
    copy.output.bias.fill_(max(_NEVER, torch.finfo(copy.output.bias.dtype).min))
    parameters = copy.state_dict()
    for name, tensor in model.state_dict().items():
        tensor = tensor.cpu()
        if name.endswith(_ROWS):
            tensor = tensor[order]
        elif name.endswith(_COLUMNS) or name == "output.weight":
            tensor = tensor[:, order]
        parameters[name][: len(tensor)] = tensor
    if is_sinusoidal:
        set_sinusoids(copy)
    return copy


def is_pre_norm(model: Transformer) -> bool:
    first = model.encoder[0]
    assert isinstance(first, EncoderLayer)
    return first.around_attention.norm_first


def _check_expressible(model: Transformer) -> None:
    """Raises for sources, positions, scales and scores that no translator of transformers has."""
    if not isinstance(model.source, nn.Embedding):
        raise ValueError(
            "a Transformer with source_size=None cannot be saved in transformers' layout, whose translators read "
            "tokens; save its state_dict() instead"
        )
    if not isinstance(model.source_place, LearnedPositions | Sinusoidal):
        raise ValueError(
            f"a Transformer with positions={model.positions.name!r} cannot be saved in transformers' layout, whose "
            "translators add sinusoids or a table to their embeddings; save its state_dict() instead"
        )
    if model.scale not in (math.sqrt(model.width), 1.0):
        raise ValueError(
            f"a Transformer with scale={model.scale:g} cannot be saved in transformers' layout, whose translators "
            "multiply embeddings by 1 or the root of the width; save its state_dict() instead"
        )
    check_writable(model)


def build_pre_norm(config: CheckpointConfig, names: frozenset[str]) -> Transformer:
    """One table of embeddings, or one each for source, target and vocabulary layer."""
    size = config.integer("vocab_size")
    tied = "all" if config.flag("tie_word_embeddings", True) else "none"
    padding = config.integer("pad_token_id", 0)
    return build_translator(config, norm="pre", source_size=size, target_size=size, tied=tied, padding=padding)


def pre_norm_maps(model: Transformer) -> list[TensorMap]:
    places = [
        ("model.encoder.embed_positions", "source_place.table"),
        ("model.decoder.embed_positions", "target_place.table"),
    ]
    result = [*linear_maps(places, bias=False), *layer_maps(model)]
    result += linear_maps([("model.encoder.layer_norm", "source_norm"), ("model.decoder.layer_norm", "target_norm")])
    if model.source is model.target:
        return [TensorMap("model.shared.weight", ("target.weight",)), *result]
    tables = [
        ("model.shared", "source"),
        ("model.encoder.embed_tokens", "source"),
        ("model.decoder.embed_tokens", "target"),
        ("lm_head", "output"),
    ]
    return [*linear_maps(tables, bias=False), *result]


def pre_norm_config(model: Transformer) -> dict[str, Any]:
    """`forced_eos_token_id` and `encoder_no_repeat_ngram_size` have other defaults in transformers."""
    kind = translator_class(model)
    return {
        "architectures": [kind],
        "model_type": kind.removesuffix("ForConditionalGeneration").lower(),
        "forced_eos_token_id": None,
        "encoder_no_repeat_ngram_size": 0,
        "tie_word_embeddings": model.source is model.target,
        **translator_config(model),
    }


def pre_norm_aliases(model: Transformer) -> dict[str, str]:
    """Names of copies of the one table."""
    names = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    return dict.fromkeys(names, "model.shared.weight") if model.source is model.target else {}
