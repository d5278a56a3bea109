"""Tiny models: every class in transformers' model mappings with a shrunken configuration, random weights and inputs."""

import copy
import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.zoo.exceptions import EXCEPTIONS

# samples, tokens, and the side of an image
BATCH, TOKENS, SIDE = 2, 11, 32
WIDTH, HEADS, HEAD = 32, 4, 8
VOCABULARY = 128
# a tiny model has fewer parameters than this
MOST_PARAMETERS = 40_000_000

# the value of an integer field by a pattern of its name; the first that matches is taken, and no field grows
SIZES: tuple[tuple[str, int], ...] = (
    (r"token_id$|_id$|_ids$|index$|^num_labels$|^num_channels$|in_channels$|in_chans$|type_vocab_size", -1),
    (r"vocab|codebook_size|num_embeddings|num_code_vectors", VOCABULARY),
    (r"heads?$|^n_heads?_|num_heads|attention_heads", HEADS),
    (r"rotary_dim", 4),
    (r"head_dim|head_size|d_kv|kv_channels|dim_head|d_head|attention_head_size", HEAD),
    (r"lora_rank|_rank$", 8),
    (r"(num|n)_.*layers?$|^(num_layers|n_layers?|layers|depth|num_blocks|n_blocks)$|_layers$|_depth$", 2),
    (r"per_tok|top_?k|num_selected", 2),
    (r"n_group|topk_group|num_expert_group", 1),
    (r"expert.*(size|dim)|(size|dim).*expert", 16),
    (r"experts", 4),
    (r"intermediate|ffn|ff_dim|mlp_dim|d_ff|n_inner|inner_dim|dim_feedforward|feed_forward", 48),
    (r"num_groups|n_groups|^groups$", 4),
    (r"image_size|input_size|img_size|resolution", SIDE),
    (r"patch_size|tubelet|encoder_stride", 8),
    (r"window_size|attention_window|sliding_window", 4),
    (r"position|n_ctx|max_.*len|seq_len|max_length|num_frames|max_.*tokens", 64),
    (r"num_mel_bins|n_mels|num_quer|num_latents|query_tokens", 8),
    (r"conv_dim|state_size|d_state|chunk_size", 16),
    (r"hidden|d_model|n_embd|embed|dim$|^dim|width|proj.*size|channels|_size$", WIDTH),
)
# the value of every element of a list of integers, the same way
LIST_SIZES: tuple[tuple[str, int], ...] = (
    (r"depths|layers|blocks|repeats", 1),
    (r"heads", 2),
    (r"patch_size|tubelet", 8),
    (r"hidden|dims?$|channels|width|embed", 16),
    (r"image_size|resolution", SIDE),
    (r"window", 4),
)
# fields with which every kind of layer is built once
KINDS = ("layer_types", "layers_block_type", "block_types", "attention_types", "mlp_layer_types", "layer_type_list")


@dataclass(frozen=True)
class TinyModel:
    """A model in evaluation mode, and arguments for one call of it."""

    model: nn.Module
    inputs: dict[str, Any]


class CannotBuild(Exception):
    """Why a class could not be built."""


def class_names() -> dict[str, str]:
    """The names of all classes in the model mappings of transformers, those of base models first, with their type."""
    from transformers.models.auto import modeling_auto

    mappings = [name for name in dir(modeling_auto) if re.fullmatch(r"MODEL.*_MAPPING_NAMES", name)]
    classes: dict[str, str] = {}
    for mapping in sorted(mappings, key=lambda name: name != "MODEL_MAPPING_NAMES"):
        for model_type, names in getattr(modeling_auto, mapping).items():
            for name in (names,) if isinstance(names, str) else names:
                classes.setdefault(name, model_type)
    return classes


def build(name: str, seed: int = 0) -> TinyModel:
    """The class of transformers with this name, tiny, random and called once; raises CannotBuild with the reason."""
    try:
        import transformers

        model_class = getattr(transformers, name)
        config = shrink(model_class.config_class)
    except Exception as error:
        raise CannotBuild(f"configuration: {_sentence(error)}") from error
    model = _random_model(model_class, config, seed)
    others = EXCEPTIONS.get(config.model_type, {}).get("inputs", dict)()
    first_error: Exception | None = None
    for attempt in _ATTEMPTS:
        try:
            inputs = {**make_inputs(model, attempt), **others}
            with torch.no_grad():
                model(**inputs)
            return TinyModel(model, inputs)
        except Exception as error:
            first_error = first_error or error
    assert first_error is not None
    raise CannotBuild(f"call: {_sentence(first_error)}") from first_error


def _random_model(model_class: type[Any], config: Any, seed: int) -> Any:
    try:
        with torch.device("meta"):
            size = sum(p.numel() for p in model_class(copy.deepcopy(config)).parameters())
    except Exception:
        size = 0  # some models compute with their weights while they are built
    if size > MOST_PARAMETERS:
        raise CannotBuild(f"configuration: {size / 1e6:.0f} million parameters after shrinking")
    try:
        torch.manual_seed(seed)
        model = model_class(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                # large enough that attention is not uniform
                if parameter.is_floating_point() and parameter.ndim > 1:
                    parameter.normal_(0.0, 0.25)
    except Exception as error:
        raise CannotBuild(f"model: {_sentence(error)}") from error
    return model


def shrink(config_class: type[Any], default: Any = None) -> Any:
    """A configuration of this class with small sizes; fields that others decide are left to the class."""
    default = config_class() if default is None else default
    declared = {field.name: field for field in dataclasses.fields(config_class) if field.init}
    values: dict[str, Any] = {}
    for name, field in declared.items():
        try:
            value = getattr(default, name, None)
        except Exception:  # differs from layer to layer
            value = field.default
        if dataclasses.is_dataclass(value) and hasattr(value, "model_type"):
            values[name] = shrink(type(value), value)
        elif field.default is not None or name in KINDS:
            small = _shrink_value(name, value)
            if small is not None:
                values[name] = small
    values |= _key_value_heads(default, declared)
    if "head_dim" in declared and getattr(default, "head_dim", HEAD) is None:
        values["head_dim"] = HEAD
    kinds = [values[name] for name in KINDS if name in values]
    layers = max([2, *(len(kind) for kind in kinds)])
    for name in KINDS:
        if name in values:
            values[name] = [*values[name], *[values[name][-1]] * (layers - len(values[name]))]
    if kinds:
        values |= {name: layers for name in values if re.search(r"^(num_hidden_layers|num_layers|n_layers?)$", name)}
    rope = getattr(default, "rope_parameters", None) or {}
    if "mrope_section" in {*rope, *(getattr(config_class, "ignore_keys_at_rope_validation", None) or ())}:
        half = int(HEAD * rope.get("partial_rotary_factor", 1.0)) // 2
        values["rope_parameters"] = {**rope, "mrope_section": [half - 2 * (half // 3), half // 3, half // 3]}
    values |= EXCEPTIONS.get(config_class.model_type, {}).get("config", {})
    return config_class(**values)


def _key_value_heads(default: Any, declared: Mapping[str, Any]) -> dict[str, int]:
    """Half as many heads of keys and values as of queries, where the default has fewer of them."""
    names = [name for name in declared if re.search(r"key_value_heads|kv_heads|n_head_kv|multi_query_group", name)]
    queries = next((getattr(default, name, None) for name in ("num_attention_heads", "n_head", "num_heads")), None)
    values = {}
    for name in names:
        try:
            count = getattr(default, name)
        except Exception:
            count = 1
        if isinstance(count, int) and declared[name].default is not None:
            values[name] = HEADS if count == queries else min(count, HEADS // 2)
    return values


def _shrink_value(name: str, value: Any) -> Any:
    """A smaller value of a field; None to leave it."""
    if name in KINDS and isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
        return list(dict.fromkeys(value))[:4]
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        if re.search(r"token_id$|token_index$", name):
            # distinct, where the default is beyond the vocabulary
            return value if value < VOCABULARY else 3 + sum(map(ord, name)) % (VOCABULARY - 3)
        size = _size_by_name(name, SIZES)
        return None if size is None or size < 0 or value <= size else size
    if isinstance(value, list | tuple) and value and all(type(item) is int for item in value):
        size = _size_by_name(name, LIST_SIZES)
        return None if size is None else type(value)(min(item, size) for item in value)
    return None


def _size_by_name(name: str, sizes: tuple[tuple[str, int], ...]) -> int | None:
    return next((size for pattern, size in sizes if re.search(pattern, name)), None)


# Inputs


# arguments beside the main input and the required ones, and others in the place of the usual ones; tried in this order
_ATTEMPTS: tuple[Mapping[str, str], ...] = (
    {},
    {"pixel_values": "pixel_values"},
    {"pixel_values": "pixel_values_videos"},
    {"input_features": "spectrogram frames"},
    {"input_features": "input_features"},
    {"input_values": "input_channels"},
    {"input_values": "spectrogram frames"},
    {"bbox": "bbox"},
    {"input_ids": "input_ids"},
    {"hidden_states": "patches", "grid_thw": "grid_thw"},
)


def make_inputs(model: Any, others: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """Arguments of a call: the main input, the required ones, those of a decoder, and `others`."""
    parameters = inspect.signature(model.forward).parameters
    named = {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    }
    wanted = [name for name in (model.main_input_name, *others) if name in named]
    wanted += [name for name, parameter in named.items() if parameter.default is inspect.Parameter.empty]
    if model.config.is_encoder_decoder and "decoder_input_ids" in named:
        wanted.append("decoder_input_ids")
    generator = torch.Generator().manual_seed(1)
    inputs: dict[str, Any] = {}
    for name in dict.fromkeys(wanted):
        maker = others.get(name, name)
        if maker not in INPUTS:
            raise KeyError(f"no input is known for the argument {name!r}")
        inputs[name] = INPUTS[maker](model.config, generator)
    return inputs


def _find(config: Any, *names: str, default: Any) -> Any:
    """The first of these fields, in the configuration or in one that it holds."""
    for name in names:
        value = getattr(config, name, None)
        if value is not None:
            return value
    for value in vars(config).values():
        if hasattr(value, "model_type"):
            found = _find(value, *names, default=None)
            if found is not None:
                return found
    return default


def _tokens(config: Any, generator: torch.Generator) -> Tensor:  # -> "b t"
    size = min(int(_find(config, "vocab_size", default=VOCABULARY)), VOCABULARY)
    special = [value for name, value in vars(config).items() if re.search(r"token_(id|index)$", name)]
    plain = torch.tensor([n for n in range(3, size) if n not in special])
    return plain[torch.randint(len(plain), (BATCH, TOKENS), generator=generator)]


def _image(config: Any, generator: torch.Generator) -> Tensor:  # -> "b c h w"
    side = _find(config, "image_size", "input_size", "img_size", default=SIDE)
    height, width = side[:2] if isinstance(side, list | tuple) else (side, side)
    channels = _find(config, "num_channels", "in_channels", "in_chans", "num_input_channels", default=3)
    return torch.randn(BATCH, channels, height, width, generator=generator)


def _video(config: Any, generator: torch.Generator) -> Tensor:  # -> "b t c h w"
    frames = _find(config, "num_frames", "frames_per_clip", default=4)
    return torch.stack([_image(config, generator) for _ in range(frames)], 1)


def _waveform(config: Any, generator: torch.Generator) -> Tensor:  # -> "b t"
    return torch.randn(BATCH, 4000, generator=generator)


def _spectrogram(config: Any, generator: torch.Generator) -> Tensor:  # -> "b f t"
    bins = _find(config, "num_mel_bins", "n_mels", "feat_size", "input_feat_per_channel", default=8)
    frames = 2 * _find(config, "max_source_positions", default=32)
    return torch.randn(BATCH, bins, frames, generator=generator)


def _features(config: Any, generator: torch.Generator) -> Tensor:  # -> "b t d"
    return torch.randn(BATCH, TOKENS, _find(config, "hidden_size", "d_model", default=WIDTH), generator=generator)


def _ones(config: Any, generator: torch.Generator) -> Tensor:
    return torch.ones(BATCH, TOKENS, dtype=torch.long)


def _patches(config: Any, generator: torch.Generator) -> Tensor:  # -> "n d"
    patch, frames = _find(config, "patch_size", default=8), _find(config, "temporal_patch_size", default=1)
    channels = _find(config, "in_channels", "num_channels", "in_chans", default=3)
    return torch.randn(2 * 16, channels * frames * patch * patch, generator=generator)


INPUTS: dict[str, Callable[[Any, torch.Generator], Any]] = {
    "input_ids": _tokens,
    "decoder_input_ids": _tokens,
    "pixel_values": _image,
    "pixel_values_videos": _video,
    "input_values": _waveform,
    "input_features": _spectrogram,
    "audio_values": _waveform,
    "input_channels": lambda config, generator: _waveform(config, generator)[:, None],
    "spectrogram frames": lambda config, generator: _spectrogram(config, generator).mT,
    "patches": _patches,
    "grid_thw": lambda config, generator: torch.tensor([[1, 4, 4], [1, 4, 4]]),
    "past_values": lambda config, generator: torch.randn(BATCH, 64, generator=generator),
    "query_embeds": _features,
    "inputs_embeds": _features,
    "hidden_states": _features,
    "attention_mask": _ones,
    "bbox": lambda config, generator: torch.zeros(BATCH, TOKENS, 4, dtype=torch.long),
}


def _sentence(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:160]}"
