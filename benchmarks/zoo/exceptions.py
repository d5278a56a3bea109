"""Exceptions of model types whose configuration or inputs cannot be shrunk by the names of their fields."""

from collections.abc import Mapping
from typing import Any

import torch

_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8}
_STAGES = {"image_size": 64, "window_size": 2}


def _global_tokens(length: int = 24) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    mask = torch.zeros(2, length, dtype=torch.long)
    mask[:, [0, 7]] = 1
    return {"input_ids": torch.randint(3, 100, (2, length), generator=generator), "global_attention_mask": mask}


def _long_text(length: int = 32) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    return {"input_ids": torch.randint(3, 100, (2, length), generator=generator)}


# by model type: "config" are fields, "inputs" makes arguments beside the usual ones
EXCEPTIONS: Mapping[str, Mapping[str, Any]] = {
    "mamba2": {"config": {"num_heads": 8, "head_dim": 8}},
    "bamba": {"config": _MAMBA},
    "falcon_h1": {"config": {**_MAMBA, "mamba_d_ssm": 64}},
    "granitemoehybrid": {"config": _MAMBA},
    "jamba": {"config": {"attn_layer_offset": 1, "attn_layer_period": 2}},
    "swin": {"config": _STAGES},
    "donut-swin": {"config": _STAGES},
    "gpt_neo": {"config": {"num_layers": 2, "attention_types": [[["global", "local"], 1]]}},
    "autoformer": {"config": {"prediction_length": 4}},
    "informer": {"config": {"prediction_length": 4}},
    "time_series_transformer": {"config": {"prediction_length": 4}},
    "longformer": {"inputs": _global_tokens},
    "led": {"inputs": _global_tokens},
    # long enough that attention is computed in blocks
    "big_bird": {"config": {"block_size": 2, "num_random_blocks": 1}, "inputs": _long_text},
    "bigbird_pegasus": {"config": {"block_size": 2, "num_random_blocks": 1}, "inputs": _long_text},
    "pegasus_x": {"config": {"block_size": 4, "num_global_tokens": 3}, "inputs": _long_text},
    "longt5": {"config": {"local_radius": 3, "global_block_size": 4}, "inputs": _long_text},
}
