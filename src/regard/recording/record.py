"""record: the attention of any model as it runs, without changing what it computes."""

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from regard.attn import checks, observer
from regard.recording.capture.function_mode import CaptureMode
from regard.recording.capture.module_stack import ModuleStack, chosen
from regard.recording.capture.recorder import CaptureOptions, Recorder
from regard.recording.capture.regard_layers import RegardCapture
from regard.recording.capture.tensor_store import TensorStore
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording

KEEP = ("qk", "weights")


@contextmanager
def record(
    model: nn.Module,
    *,
    layers: str | Sequence[str] | None = None,
    heads: Sequence[int] | int | None = None,
    rows: Sequence[int] | slice | None = None,
    keep: str = "qk",
    gradients: bool = False,
    budget: int = 2_000_000_000,
    tolerance: float | None = None,
) -> Iterator[Recording]:
    """Every attention of a model while it runs, each map with a certificate: with record(model) as tape: model(x)

    Heard are this library's layers, scaled_dot_product_attention, nn.MultiheadAttention and nn.Transformer (whose fast
    path forms no weights, and is left for one that gives the same), flex_attention, and attention written out as a
    softmax. Compiled models run uncompiled meanwhile. The tape is a Recording that grows, during and after.

    `layers` are patterns of module names, "encoder.*"; `heads` and `rows` say which heads and which queries of every
    call. Queries and keys are kept, linear in the length, and weights computed when looked at; keep="weights" keeps
    weights. `gradients` keeps values too, so that after a backward pass `gradient` is ∂L/∂P. `budget` is in bytes.
    `tolerance` is the greatest certificate of a verified map; None goes by what rounding may do.
    """
    if observer.listener() is not None:
        raise RuntimeError(
            "record listens already in this thread; end that with-block first, or choose among its modules with layers="
        )
    checks.term("model", model, nn.Module, "your model")
    places = ModuleStack(model)
    _check(places, keep, budget, tolerance)
    choice = CaptureOptions(
        chosen(layers, list(places.modules)), _heads(heads), _rows(rows), keep == "weights", gradients, tolerance
    )
    maps: list[RecordedMap] = []
    # this package lies above all rooms: nobody here may import it, and it is loaded
    ours = sys.modules["regard"].__version__
    tape = Recording(about={"model": type(model).__name__, "regard": ours, "torch": torch.__version__})
    # it grows while the model runs: a list until then
    object.__setattr__(tape, "maps", maps)
    recorder = Recorder(places, TensorStore(budget), choice, maps)
    with ExitStack() as stack:
        if {"torch._dynamo", "torch.nn.attention.flex_attention"} & sys.modules.keys():
            # a graph that is compiled already calls no hook and nobody who listens
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        for handle in places.attach():
            stack.callback(handle.remove)
        ear = CaptureMode(recorder)
        before = observer.listen(RegardCapture(recorder, ear.eager.forget))
        stack.callback(observer.listen, before)
        stack.callback(lambda: object.__setattr__(tape, "maps", tuple(maps)))
        stack.enter_context(ear)
        yield tape
    _tell(places, ear.eager.unheard(), maps)


def _tell(places: ModuleStack, unheard: list[str], maps: list[RecordedMap]) -> None:
    """What is not on the tape, though somebody may look for it there."""
    said = None
    if unheard:
        names = ", ".join(repr(name or "the model") for name in unheard[:4]) + (", …" if len(unheard) > 4 else "")
        said = (
            f"record heard a softmax in {names}, of queries by keys or that something was mixed by, and how it was "
            "used is not understood: that is not on the tape; if it is attention, mix by torch.matmul(weights, "
            "values), if it is none, leave it out with layers="
        )
    elif not maps and not places.entered:
        said = "record heard nothing: no module of the model ran in this thread; call the model inside the with-block"
    elif not maps:
        said = (
            "record heard no attention; mix by scaled_dot_product_attention or softmax(…) @ values in Python, "
            "or widen layers="
        )
    if said is not None:
        warnings.warn(said, UserWarning, stacklevel=4)


def _check(places: ModuleStack, keep: str, budget: int, tolerance: float | None) -> None:
    for name, module in places.modules.items():
        if isinstance(module, torch.jit.ScriptModule):
            raise TypeError(
                f"record cannot listen inside TorchScript, and {name or 'the model'!r} is a {type(module).__name__}; "
                "record the model before it is scripted or traced"
            )
        if isinstance(module, nn.DataParallel):
            raise TypeError(
                f"record listens in one thread, and {name or 'the model'!r} runs in several; pass the .module inside it"
            )
    checks.known("keep", keep, KEEP)
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
        raise ValueError(f"budget must be a positive number of bytes, got {budget!r}; try 2_000_000_000")
    if tolerance is not None:
        checks.positive("tolerance", tolerance, "record")


def _heads(heads: Sequence[int] | int | None) -> list[int] | None:
    return None if heads is None else _whole("heads", [heads] if isinstance(heads, int) else heads)


def _rows(rows: Sequence[int] | slice | None) -> list[int] | slice | None:
    return rows if rows is None or isinstance(rows, slice) else _whole("rows", rows)


def _whole(name: str, numbers: Sequence[int]) -> list[int]:
    found = list(numbers)
    if not found or any(isinstance(n, bool) or not isinstance(n, int) for n in found):
        raise TypeError(f"{name} must be whole numbers, at least one, got {numbers!r}; try {name}=[0], or leave it out")
    return found
