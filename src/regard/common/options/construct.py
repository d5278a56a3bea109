"""Models out of the options that have the names of their parameters. No torch here: the class comes from the caller."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def construct(model: Callable[..., T], options: Any, *args: Any, **from_data: Any) -> T:
    """`model(*args, **from_data)` with the fields of the dataclass `options` whose names its parameters have.

    construct(BERT, options, len(tokenizer), longest=512) passes options.width as `width`. The caller passes arguments
    that the data decides; they win over fields of the same name.
    """
    signature = inspect.signature(model)
    names = signature.parameters.keys() - signature.bind_partial(*args, **from_data).arguments.keys()
    values = {item.name: getattr(options, item.name) for item in fields(options) if item.name in names}
    return model(*args, **values, **from_data)
