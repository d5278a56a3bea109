"""nn.MultiheadAttention, and with it nn.Transformer: torch's own function, run with its calls captured."""

from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch.nn.functional as F

if TYPE_CHECKING:
    from regard.recording.capture.function_mode import CaptureMode


@lru_cache(maxsize=1)
def undispatched() -> Callable[..., Any]:
    """multi_head_attention_forward without its dispatch to the function mode, which would recurse for ever."""
    function = F.multi_head_attention_forward
    names = {**vars(F), "has_torch_function": lambda tensors: False}
    undispatched = FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    undispatched.__kwdefaults__ = function.__kwdefaults__
    return undispatched


def capture(mode: "CaptureMode", func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    names = ("query", "key", "value", "embed_dim_to_check", "num_heads")
    arguments = {**dict(zip(names, args, strict=False)), **kwargs}
    frame = mode.frame
    # self or cross attention shows in the arguments, and no more after the projections
    source = "key_value_states" if arguments["key"] is not arguments["query"] else "past_key_values"
    frame = frame._replace(kwargs={**frame.kwargs, source: arguments["key"]})
    with mode.inside("multi_head_attention", frame, arguments["num_heads"]):
        return undispatched()(*args, **kwargs)
