"""nn.MultiheadAttention, and with it nn.Transformer: its own function, word for word, with an ear inside."""

from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch.nn.functional as F

if TYPE_CHECKING:
    from regard.recording.capture.function_mode import CaptureMode


@lru_cache(maxsize=1)
def _inside() -> Callable[..., Any]:
    """multi_head_attention_forward without its first lines, which hand it to whoever listens: for ever."""
    plain = F.multi_head_attention_forward
    unheard = {**vars(F), "has_torch_function": lambda tensors: False}
    made = FunctionType(plain.__code__, unheard, plain.__name__, plain.__defaults__, plain.__closure__)
    made.__kwdefaults__ = plain.__kwdefaults__
    return made


def hear(ear: "CaptureMode", func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    names = ("query", "key", "value", "embed_dim_to_check", "num_heads")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    frame = ear.frame
    # the projections hide whose keys these are; what came in does not
    source = "key_value_states" if given["key"] is not given["query"] else "past_key_values"
    frame = frame._replace(kwargs={**frame.kwargs, source: given["key"]})
    with ear.inside("multi_head_attention", frame, given["num_heads"]):
        return _inside()(*args, **kwargs)
