"""record: the attention of any model as it runs, without changing what it computes."""

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from regard.attn import observer
from regard.common import checks
from regard.recording.capture.function_mode import CaptureMode
from regard.recording.capture.module_stack import ModuleStack, checked_patterns, foreign_warning
from regard.recording.capture.recorder import CaptureOptions, Recorder
from regard.recording.capture.regard_layers import RegardCapture
from regard.recording.capture.tensor_store import TensorStore
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.recording.recurrent_gates import GateCapture

KEEP = ("qk", "weights")
# the beginning of the warning about a recording without maps
NO_ATTENTION = "record found no attention"


@contextmanager
def record(
    model: nn.Module,
    *,
    layers: str | Sequence[str] | None = None,
    heads: Sequence[int] | int | None = None,
    rows: Sequence[int] | slice | None = None,
    keep: str = "qk",
    gradients: bool = False,
    gates: bool = False,
    budget: int = 2_000_000_000,
    tolerance: float | None = None,
) -> Iterator[Recording]:
    """Records every attention of a model while it runs: with record(model) as recording: model(x)

    It captures the layers of this library, scaled_dot_product_attention, nn.MultiheadAttention and nn.Transformer
    (whose fast path forms no weights; a path with the same results runs instead), flex_attention, and attention
    written out as a softmax. Compiled models run uncompiled meanwhile. The Recording grows while the model runs; every
    map has a certificate.

    `layers` are patterns of module names, "encoder.*"; `heads` and `rows` are the heads and the queries of every call
    to record. Queries and keys are kept, linear in the length, and weights are computed when they are read;
    keep="weights" keeps weights. `gradients` keeps values too, so that after a backward pass `gradient` is ∂L/∂P.
    `gates` records the gates of GRU and LSTM, too, units by steps: maps of kind "cell" named MODULE.l0.update, which
    are computed a second time from weights and inputs, and for which `heads` and `rows` mean nothing.
    `budget` is in bytes. `tolerance` is the greatest certificate of a verified map; None takes a bound of rounding.
    """
    if observer.current_observer() is not None:
        raise RuntimeError(
            "another record, or an intervene, is running in this thread; end that with-block first, or select the "
            "modules of one record with layers="
        )
    checks.instance_of("model", model, nn.Module, "your model")
    stack = ModuleStack(model)
    _check(stack, keep, budget, tolerance)
    patterns = checked_patterns(layers, list(stack.modules))
    options = CaptureOptions(patterns, _heads(heads), _rows(rows), keep == "weights", gradients, tolerance)
    maps: list[RecordedMap] = []
    # the top package is loaded, and no sub-package may import it
    version = sys.modules["regard"].__version__
    recording = Recording(about={"model": type(model).__name__, "regard": version, "torch": torch.__version__})
    # a list while the model runs, so that it grows
    object.__setattr__(recording, "maps", maps)
    recorder = Recorder(stack, TensorStore(budget), options, maps)
    with ExitStack() as exits:
        if {"torch._dynamo", "torch.nn.attention.flex_attention"} & sys.modules.keys():
            # a compiled graph calls neither hooks nor the function mode
            exits.enter_context(torch.compiler.set_stance("force_eager"))
            exits.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        exits.enter_context(stack.attached())
        mode, gate_capture = CaptureMode(recorder), GateCapture(recorder) if gates else None
        before = observer.set_observer(RegardCapture(recorder, mode.eager.drop, gate_capture))
        exits.callback(observer.set_observer, before)
        exits.callback(lambda: object.__setattr__(recording, "maps", tuple(maps)))
        if gate_capture is not None:
            exits.enter_context(gate_capture.attached())
        exits.enter_context(mode)
        yield recording
        mode.finish()
        if gate_capture is not None:
            gate_capture.finish()
    for message in _warnings(stack, mode.eager.uses.unrecognised(), recorder, maps):
        warnings.warn(message, UserWarning, stacklevel=3)


def _warnings(
    stack: ModuleStack, unrecognised: list[str], recorder: Recorder, maps: list[RecordedMap]
) -> Iterator[str]:
    """Sentences about attention that may be missing from the recording."""
    if stack.foreign_modules:
        yield foreign_warning("record", stack)
    if unrecognised:
        yield (
            f"record found a softmax in {_quoted(unrecognised)} that looks like attention but could not follow how its "
            "output is used, so it was not recorded; if it is attention, write torch.matmul(weights, values), if not, "
            "exclude the module with layers="
        )
    if recorder.unjoined:
        is_training = any(stack.modules[name].training for name in recorder.unjoined)
        yield (
            f"record found attention in {_quoted(list(recorder.unjoined))} that is computed in pieces, or between "
            "channels instead of positions, and could make no map of it, so it was not recorded; "
            f"{'call model.eval(), or ' if is_training else ''}exclude the module with layers="
        )
    if not maps and not stack.has_run:
        yield "record found nothing: no module of the model ran in this thread; call the model inside the with-block"
    elif not maps and not unrecognised and not recorder.unjoined:
        yield (
            f"{NO_ATTENTION}; attend by scaled_dot_product_attention or softmax(…) @ values in Python, or widen layers="
        )
    elif maps and (silent := _silent_modules(stack, {*unrecognised, *recorder.unjoined}, recorder, maps)):
        yield (
            f"record found no weights in {_quoted(silent)}, which ran and is attention by its name, so it is missing "
            "from the recording; attention without a softmax over keys, such as linear attention, forms none"
        )


def _silent_modules(stack: ModuleStack, reported: set[str], recorder: Recorder, maps: list[RecordedMap]) -> list[str]:
    """Modules that are attention by their names and ran, without a map of theirs, of a part, or of a whole."""
    recorded = {m.name for m in maps} | reported
    inside = {name[:n] for name in recorded for n, letter in enumerate(name) if letter == "."} | recorded
    silent = []
    for name in stack.attention_modules:
        wholes = {name[:n] for n, letter in enumerate(name) if letter == "."} & stack.attention_modules.keys()
        if name not in inside and not wholes & recorded and recorder.is_selected(name):
            silent.append(name)
    # a part of one that is named
    return [name for name in silent if not any(name.startswith(f"{other}.") for other in silent)]


def _quoted(names: list[str]) -> str:
    quoted = ", ".join(repr(name or "the model") for name in names[:4])
    return quoted + (", …" if len(names) > 4 else "")


def _check(stack: ModuleStack, keep: str, budget: int, tolerance: float | None) -> None:
    for name, module in stack.modules.items():
        if isinstance(module, torch.jit.ScriptModule):
            raise TypeError(
                f"record cannot capture calls inside TorchScript, and {name or 'the model'!r} is a "
                f"{type(module).__name__}; record the model before it is scripted or traced"
            )
        if isinstance(module, nn.DataParallel):
            raise TypeError(
                f"record captures one thread, and {name or 'the model'!r} runs in several; pass the .module inside it"
            )
    checks.known("keep", keep, KEEP)
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
        raise ValueError(f"budget must be a positive number of bytes, got {budget!r}; try 2_000_000_000")
    if tolerance is not None:
        checks.positive("tolerance", tolerance, "record")


def _heads(heads: Sequence[int] | int | None) -> list[int] | None:
    return None if heads is None else _integers("heads", [heads] if isinstance(heads, int) else heads)


def _rows(rows: Sequence[int] | slice | None) -> list[int] | slice | None:
    return rows if rows is None or isinstance(rows, slice) else _integers("rows", rows)


def _integers(name: str, numbers: Sequence[int]) -> list[int]:
    checked = list(numbers)
    if not checked or any(isinstance(n, bool) or not isinstance(n, int) for n in checked):
        raise TypeError(f"{name} must be whole numbers, at least one, got {numbers!r}; try {name}=[0], or leave it out")
    return checked
