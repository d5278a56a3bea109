"""Rotary positions in config.json: `rope_parameters`, or `rope_scaling` and `rope_theta` of older folders."""

from collections.abc import Callable, Mapping
from typing import Any

from regard.attn.terms.rotary import Rotary
from regard.attn.terms.rotary_scaling import (
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    LongRoPEScaling,
    NTKScaling,
    ProportionalScaling,
    RotaryScaling,
    YaRNScaling,
)
from regard.models.pretrained.folder import CONFIG, CheckpointConfig

_LONGEST, _ORIGINAL = "max_position_embeddings", "original_max_position_embeddings"


def rotary_entries(config: CheckpointConfig) -> dict[str, Any]:
    """The object of config.json that describes the rotation."""
    for key in ("rope_parameters", "rope_scaling"):
        entries = config.values.get(key)
        if entries is None:
            continue
        if not isinstance(entries, dict):
            raise ValueError(f"{key} of {config.folder / CONFIG} must be an object; correct the file")
        if entries:
            return entries
    return {}


def read_rotary(
    config: CheckpointConfig,
    dim: int,
    *,
    entries: Mapping[str, Any] | None = None,
    base: float = 10000.0,
    share: float | None = None,
) -> Rotary:
    """The rotation of heads of width `dim`.

    `share` is the default of the part of a head that is rotated; None: these models rotate whole heads. `base` is the
    default of rope_theta.
    """
    entries = rotary_entries(config) if entries is None else entries
    # of two entries transformers reads the inner one, but the outer length of the training
    merged = {
        **_present(config.values, "rope_theta", "partial_rotary_factor", _LONGEST),
        **_present(entries, *entries),
        **_present(config.values, _ORIGINAL),
    }
    values = CheckpointConfig(config.folder, merged)
    kind = entries.get("rope_type", entries.get("type", "default"))
    if kind != "default" and (not isinstance(kind, str) or kind not in _READERS):
        raise ValueError(
            f"{config.folder / CONFIG} scales rotary positions by {kind!r}, and regard supports default, "
            f"{', '.join(_READERS)}; take another checkpoint"
        )
    if share is None and kind != "proportional":
        values.refuse(partial_rotary_factor=1.0)
    whole = share is None or kind == "proportional"
    part = dim if whole else int(dim * values.number("partial_rotary_factor", share))
    try:
        scaling = None if kind == "default" else _READERS[kind](values)
        return Rotary(dim, base=values.number("rope_theta", base), rotary_dim=part, scaling=scaling)
    except ValueError as error:
        if str(config.folder) in str(error):
            raise
        raise ValueError(
            f"the rotary positions in {config.folder / CONFIG} make no rotation ({error}); correct the file"
        ) from error


def _present(entries: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: entries[key] for key in keys if entries.get(key) is not None}


def _original(values: CheckpointConfig) -> int:
    return values.integer(_ORIGINAL) if values.values.get(_ORIGINAL) is not None else values.integer(_LONGEST)


def _factor(values: CheckpointConfig) -> float:
    """How many times as long the longest text is as those of the training."""
    if values.values.get("factor") is not None:
        return values.number("factor")
    return values.integer(_LONGEST) / max(_original(values), 1)


def _attention_factor(values: CheckpointConfig) -> float | None:
    return None if values.values.get("attention_factor") is None else values.number("attention_factor")


def _yarn(values: CheckpointConfig) -> RotaryScaling:
    """DeepSeek's mscale replaces the amplitude by (0.1 mscale ln s + 1) / (0.1 mscale_all_dim ln s + 1)."""
    factor, attention_factor = _factor(values), _attention_factor(values)
    scales = [values.number(key, 0.0) for key in ("mscale", "mscale_all_dim")]
    if attention_factor is None and all(scales):
        amplitudes = [1 + (YaRNScaling(factor, 1).amplitude - 1) * scale for scale in scales]
        attention_factor = amplitudes[0] / amplitudes[1]
    fast, slow = values.number("beta_fast", 32.0) or 32.0, values.number("beta_slow", 1.0) or 1.0
    return YaRNScaling(factor, _original(values), fast, slow, attention_factor, values.flag("truncate", True))


def _longrope(values: CheckpointConfig) -> RotaryScaling:
    short, long = values.numbers("short_factor"), values.numbers("long_factor")
    return LongRoPEScaling(_factor(values), _original(values), short, long, _attention_factor(values))


def _llama3(values: CheckpointConfig) -> RotaryScaling:
    low, high = values.number("low_freq_factor"), values.number("high_freq_factor")
    return Llama3Scaling(values.number("factor"), low, high, _original(values))


_READERS: dict[str, Callable[[CheckpointConfig], RotaryScaling]] = {
    "linear": lambda values: LinearScaling(values.number("factor")),
    "dynamic": lambda values: DynamicNTKScaling(values.number("factor"), values.integer(_LONGEST)),
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": lambda values: ProportionalScaling(
        values.number("partial_rotary_factor", 1.0), values.number("factor", 1.0)
    ),
}


def write_rotary(owner: str, rotary: Rotary | None) -> dict[str, Any]:
    """The entries of config.json that read_rotary reads, and transformers; raises if it has no such rotation."""
    entries = _scaling_entries(rotary.scaling) if rotary is not None else None
    if rotary is None or rotary.axes is not None or rotary.pairs != "halves" or entries is None:
        raise ValueError(
            f"a {owner} with rotate={rotary!r} cannot be saved in transformers' layout, which has no such rotation; "
            "save its state_dict() instead"
        )
    base, outer = rotary.base, {}
    if isinstance(rotary.scaling, NTKScaling):  # the same frequencies by another base
        base *= rotary.scaling.factor ** (rotary.rotary_dim / max(rotary.rotary_dim - 2, 1))
    if isinstance(rotary.scaling, DynamicNTKScaling):
        outer = {_LONGEST: rotary.scaling.original}
    if isinstance(rotary.scaling, LongRoPEScaling):
        longest = round(rotary.scaling.factor * rotary.scaling.original)
        outer = {_ORIGINAL: rotary.scaling.original, _LONGEST: longest}
    if rotary.rotary_dim != rotary.dim:
        entries["partial_rotary_factor"] = rotary.rotary_dim / rotary.dim
    return {"rope_parameters": {"rope_theta": base, **entries}, **outer}


def _scaling_entries(scaling: RotaryScaling | None) -> dict[str, Any] | None:
    """None: transformers has no such scaling."""
    match scaling:
        case None | NTKScaling():
            entries: dict[str, Any] = {"rope_type": "default"}
        case LinearScaling(factor):
            entries = {"rope_type": "linear", "factor": factor}
        case ProportionalScaling(share, factor):
            entries = {"rope_type": "proportional", "factor": factor, "partial_rotary_factor": share}
        case DynamicNTKScaling(factor, length=None):
            entries = {"rope_type": "dynamic", "factor": factor}
        case YaRNScaling(factor, original, fast, slow, _, truncate):
            entries = {"rope_type": "yarn", "factor": factor, "beta_fast": fast, "beta_slow": slow}
            entries |= {_ORIGINAL: original, "truncate": truncate, "attention_factor": scaling.amplitude}
        case LongRoPEScaling(factor, original, short, long, length=None):
            entries = {"rope_type": "longrope", "factor": factor, _ORIGINAL: original}
            entries |= {"short_factor": list(short), "long_factor": list(long)}
            entries |= {"attention_factor": scaling.amplitude}
        case Llama3Scaling(factor, low, high, original):
            entries = {"rope_type": "llama3", "factor": factor, _ORIGINAL: original}
            entries |= {"low_freq_factor": low, "high_freq_factor": high}
        case _:
            return None
    return entries
