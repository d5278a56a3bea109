"""Marian translators in transformers' layout, MarianMTModel, as a post-norm Transformer with fixed positions."""

from typing import Any, NamedTuple

from regard.models.pretrained.architecture import Architecture, check_writable
from regard.models.pretrained.folder import CheckpointConfig
from regard.models.pretrained.sentencepiece_files import special_tokens
from regard.models.pretrained.tensor_map import TensorMap, linear_maps
from regard.models.pretrained.translator_layout import (
    LAYERS,
    build_translator,
    has_sinusoids,
    is_pre_norm,
    layer_maps,
    set_sinusoids,
    translator_config,
)
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
    config.refuse(
        normalize_before=False,
        normalize_embedding=False,
        add_final_layer_norm=False,
        static_position_embeddings=True,
    )
    source = config.integer("vocab_size")
    shared = config.flag("share_encoder_decoder_embeddings", True)
    if shared:
        config.refuse(tie_word_embeddings=True)
    return build_translator(
        config,
        norm="post",
        source_size=source,
        target_size=config.integer("decoder_vocab_size", source),
        tied="all" if shared else "target" if config.flag("tie_word_embeddings", True) else "none",
        padding=config.integer("pad_token_id"),
    )


def maps(model: Transformer) -> list[TensorMap]:
    if model.source is model.target:
        return [TensorMap("model.shared.weight", ("target.weight",)), *layer_maps(model)]
    tables = [("model.encoder.embed_tokens", "source"), ("model.decoder.embed_tokens", "target")]
    if model.output.weight is not model.target.weight:
        tables.append(("lm_head", "output"))
    return [*linear_maps(tables, bias=False), *layer_maps(model)]


def config_of(model: Transformer) -> dict[str, Any]:
    check_writable(model, norm=("post", "pre" if is_pre_norm(model) else "post"))
    if not has_sinusoids(model):
        raise ValueError(
            "a Transformer with norm='post' and learned positions cannot be saved in transformers' layout: Marian's "
            "positions are sinusoids, and BART has a norm behind the embeddings; train it with norm='pre' or "
            "positions='sinusoidal', or save its state_dict() instead"
        )
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "decoder_vocab_size": model.target.num_embeddings,
        "share_encoder_decoder_embeddings": model.source is model.target,
        "tie_word_embeddings": model.output.weight is model.target.weight,
        **translator_config(model),
    }


def _aliases(model: Transformer) -> dict[str, str]:
    if model.source is model.target:
        names = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
        return dict.fromkeys(names, "model.shared.weight")
    if model.output.weight is not model.target.weight:
        return {}
    return {"lm_head.weight": "model.decoder.embed_tokens.weight"}


MARIAN_ARCHITECTURES = {
    "MarianMTModel": Architecture(
        "translate",
        build,
        maps,
        config_of,
        aliases=_aliases,
        layers=LAYERS,
        buffers=r"model\.(encoder|decoder)\.embed_positions\.weight",
        prepare=set_sinusoids,
    )
}
