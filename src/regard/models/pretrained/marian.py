"""Marian translators in transformers' layout, MarianMTModel, as a post-norm Transformer with fixed positions."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attn.terms.position import LearnedPositions
from regard.layers.transformer import DecoderLayer, EncoderLayer
from regard.models.pretrained.architecture import Architecture, activation_name, activation_of, check_writable
from regard.models.pretrained.folder import CheckpointConfig
from regard.models.pretrained.sentencepiece_files import special_tokens
from regard.models.pretrained.tensor_map import TensorMap, linear_maps
from regard.models.transformer import Transformer


class SearchTokens(NamedTuple):
    """The tokens that a search needs: run_search(model, state, …, **tokens._asdict())."""

    bos: int
    eos: int
    forbidden: tuple[int, ...]


def search_tokens(config: CheckpointConfig) -> SearchTokens:
    """A translation begins with the token of padding, which it may not hold."""
    special = special_tokens(config)
    return SearchTokens(special.bos, special.eos, special.forbidden)


def build(config: CheckpointConfig, names: frozenset[str]) -> Transformer:
    feed, heads, width = (
        config.integer("encoder_ffn_dim"),
        config.integer("encoder_attention_heads"),
        config.integer("d_model"),
    )
    config.refuse(
        decoder_ffn_dim=feed,
        decoder_attention_heads=heads,
        normalize_before=False,
        normalize_embedding=False,
        add_final_layer_norm=False,
        static_position_embeddings=True,
        tie_word_embeddings=True,
    )
    source = config.integer("vocab_size")
    target = config.integer("decoder_vocab_size", source)
    shared = config.flag("share_encoder_decoder_embeddings", True)
    return Transformer(
        source,
        target,
        width=width,
        layers=config.integer("encoder_layers"),
        decoder_layers=config.integer("decoder_layers"),
        heads=heads,
        feed=feed,
        norm="post",
        positions="learned",
        longest=config.integer("max_position_embeddings"),
        activation=activation_of(config, "activation_function", "gelu"),
        scale=None if config.flag("scale_embedding", False) else 1.0,
        dropout=config.number("dropout", 0.1),
        tied="all" if shared else "target",
        padding=config.integer("pad_token_id"),
    )


def position_table(length: int, width: int) -> Tensor:  # -> "n d"
    """[sin(p ω); cos(p ω)], ω_k = 10000^(−2k/d), computed in float64."""
    rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(length, dtype=torch.float64).unsqueeze(-1) * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1).float()


@torch.no_grad()
def prepare(model: Transformer) -> None:
    """Fills the tables of positions, which are constants: they are not trained."""
    for place in (model.source_place, model.target_place):
        assert isinstance(place, LearnedPositions)
        place.table.weight.copy_(position_table(place.table.num_embeddings, model.width))
        place.table.weight.requires_grad_(False)


def maps(model: Transformer) -> list[TensorMap]:
    if model.source is model.target:
        result = [TensorMap("model.shared.weight", ("target.weight",))]
    else:
        result = [
            TensorMap("model.encoder.embed_tokens.weight", ("source.weight",)),
            TensorMap("model.decoder.embed_tokens.weight", ("target.weight",)),
        ]
    result.append(TensorMap("final_logits_bias", ("output.bias",), axes=1))
    projections = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}
    attentions = {
        "encoder": {"self_attn": ("attention", "around_attention")},
        "decoder": {
            "self_attn": ("self_attention", "around_self"),
            "encoder_attn": ("cross_attention", "around_cross"),
        },
    }
    for side, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        for n in range(len(layers)):
            theirs, ours = f"model.{side}.layers.{n}", f"{side}.{n}"
            pairs = [
                (f"{theirs}.fc1", f"{ours}.feed.inner"),
                (f"{theirs}.fc2", f"{ours}.feed.outer"),
                (f"{theirs}.final_layer_norm", f"{ours}.around_feed.norm"),
            ]
            for name, (attention, around) in attentions[side].items():
                pairs += [(f"{theirs}.{name}.{t}", f"{ours}.{attention}.{o}") for t, o in projections.items()]
                pairs.append((f"{theirs}.{name}_layer_norm", f"{ours}.{around}.norm"))
            result += linear_maps(pairs)
    return result


def config_of(model: Transformer) -> dict[str, Any]:
    first, last = model.encoder[0], model.decoder[0]
    assert isinstance(first, EncoderLayer)
    assert isinstance(last, DecoderLayer)
    is_post, place = not first.around_attention.norm_first, model.source_place
    check_writable(model, norm=("post", "post" if is_post else "pre"))
    expected = position_table(model.longest or 1, model.width)
    if not isinstance(place, LearnedPositions) or not torch.equal(place.table.weight.float().cpu(), expected):
        raise ValueError(
            "a Transformer whose positions are not Marian's table cannot be saved in transformers' layout; "
            "save its state_dict() instead"
        )
    padding = model.target.padding_idx
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": model.source.num_embeddings,
        "decoder_vocab_size": model.target.num_embeddings,
        "share_encoder_decoder_embeddings": model.source is model.target,
        "tie_word_embeddings": True,
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


def _aliases(model: Transformer) -> dict[str, str]:
    if model.source is model.target:
        names = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
        return dict.fromkeys(names, "model.shared.weight")
    return {"lm_head.weight": "model.decoder.embed_tokens.weight"}


MARIAN_ARCHITECTURES = {
    "MarianMTModel": Architecture(
        "translate",
        build,
        maps,
        config_of,
        aliases=_aliases,
        buffers=r"model\.(encoder|decoder)\.embed_positions\.weight",
        prepare=prepare,
    )
}
