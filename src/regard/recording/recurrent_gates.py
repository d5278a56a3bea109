"""GateCapture: the gates of GRU and LSTM, step by step, computed beside the model from its weights and inputs."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from regard.attn.maps.attention_map import DenseMap
from regard.common import checks
from regard.layers.rnn.encoder import Encoder
from regard.layers.rnn.stack import Stack
from regard.recording.capture.certificate import ROUNDING
from regard.recording.capture.recorder import Recorder
from regard.recording.recorded_map import RecordedMap

# the gates of a cell by its number of products, in torch's order; the candidate between them is no gate
GATES = {3: ("reset", "update"), 4: ("input", "forget", "output")}
_SEQUENCES, _CELLS = (nn.GRU, nn.LSTM), (nn.GRUCell, nn.LSTMCell)


@dataclass
class _OpenSequence:
    """The steps of a cell that the caller loops over, so far."""

    gates: list[Tensor] = field(default_factory=list)  # "b g u" each
    last: Tensor | None = None  # the h that the next step must begin with
    gap: float = 0.0
    bound: float = 0.0


class GateCapture:
    """Records the gates of every GRU and LSTM, nn.GRUCell and nn.LSTMCell as maps of kind "cell": units by steps."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._open: dict[str, _OpenSequence] = {}

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Follows torch's recurrent modules while the block runs; this library's own layers report theirs."""
        modules = self.recorder.module_stack.modules
        # a hook would keep them from their native cells
        native = {id(module.rnn) for module in modules.values() if isinstance(module, Encoder | Stack)}
        with ExitStack() as handles:
            for module in {id(module): module for module in modules.values()}.values():
                if isinstance(module, _SEQUENCES) and id(module) not in native:
                    handles.callback(module.register_forward_hook(self._after_sequence, with_kwargs=True).remove)
                elif isinstance(module, _CELLS):
                    handles.callback(module.register_forward_hook(self._after_cell, with_kwargs=True).remove)
            yield

    def finish(self) -> None:
        """Ends the sequences of cells that are still open."""
        for name in list(self._open):
            self._close(name)

    def on_sequence(
        self, rnn: nn.RNNBase, rows: Tensor, sizes: Sequence[int], first: Any, out: Tensor, rank: Tensor | None = None
    ) -> None:  # "r d" -> "r h·directions"
        """A whole sequence, packed step by step; `first` are the states of every layer and direction, "b h" each.

        `rank` is the place of each sequence among the sorted ones.
        """
        name = self._name(rnn)
        if name is None or not isinstance(rnn, _SEQUENCES):
            return
        if rnn.training and rnn.dropout and rnn.num_layers > 1:
            raise ValueError(
                f"gates=True computes the gates of {name or 'the model'!r} again, whose layers lose random units "
                f"between them (dropout={rnn.dropout:g}); call model.eval(), or leave gates out"
            )
        with self.recorder.muted(), _plain(rows):
            self._keep_sequence(name, rnn, rows, sizes, first, out, rank)

    def on_step(self, rnn: nn.RNNBase, layer: int, products: tuple[Tensor, Tensor], before: Any, after: Any) -> None:
        """One step of a layer that the caller loops over: W x + b and U h + b', the state before it and after it."""
        name = self._name(rnn)
        if name is not None and isinstance(rnn, _SEQUENCES):
            self._keep_step(_joined(name, f"l{layer}"), products, before, after)

    def _after_sequence(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        assert isinstance(module, _SEQUENCES)
        x, first = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 1, "hx")
        outputs, rank = out[0], None
        if isinstance(x, PackedSequence):
            rows, sizes, rank = x.data, x.batch_sizes.tolist(), x.unsorted_indices
            outputs = outputs.data
        else:
            is_single = x.ndim == 2
            x, outputs = (t.unsqueeze(0 if module.batch_first else 1) if is_single else t for t in (x, outputs))
            x, outputs = (t.transpose(0, 1) if module.batch_first else t for t in (x, outputs))  # "t b d"
            rows, sizes, outputs = x.flatten(0, 1), [x.shape[1]] * x.shape[0], outputs.flatten(0, 1)
            if is_single and first is not None:
                first = tuple(t.unsqueeze(1) for t in first) if isinstance(first, tuple) else first.unsqueeze(1)
        states = _states(module, first, rows, sizes[0])
        if rank is not None and first is not None:
            # torch sorts the given states as it sorts the sequences
            assert isinstance(args[0] if args else kwargs["input"], PackedSequence)
            order = (args[0] if args else kwargs["input"]).sorted_indices
            states = [[[t.index_select(0, order) for t in parts] for parts in layer] for layer in states]
        self.on_sequence(module, rows, sizes, states, outputs, rank)

    def _after_cell(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        name = self._name(module)
        if name is None:
            return
        assert isinstance(module, _CELLS)
        x, first = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 1, "hx")
        after = out if isinstance(out, tuple) else (out,)
        zeros = torch.zeros_like(after[0])
        before = (zeros,) * len(after) if first is None else first if isinstance(first, tuple) else (first,)
        with self.recorder.muted(), _plain(x):
            products = (
                _product(x, module.weight_ih, module.bias_ih),
                _product(before[0], module.weight_hh, module.bias_hh),
            )
        self._keep_step(name, products, before, after)

    def _name(self, module: nn.Module) -> str | None:
        """The name of a selected module of the model; None for others, and while nothing is recorded."""
        stack = self.recorder.module_stack
        if self.recorder.pauses or not stack.has_module(module):
            return None
        name = stack.name_of(module)
        return name if self.recorder.is_selected(name) else None

    def _keep_sequence(
        self,
        name: str,
        rnn: nn.RNNBase,
        rows: Tensor,
        sizes: Sequence[int],
        first: Any,
        out: Tensor,
        rank: Tensor | None,
    ) -> None:
        x, parts = rows.detach().to(checks.accumulate_dtype(rows.dtype)), []
        for n, directions in enumerate(first):
            outputs = []
            for is_reverse, state in enumerate(directions):
                suffix = f"l{n}" + "_reverse" * is_reverse
                gates, h = run_sequence(rnn, suffix, x, sizes, state, bool(is_reverse))
                parts.append((_joined(name, suffix), _padded(gates, sizes, rank)))
                outputs.append(h)
            x = torch.cat(outputs, -1)
        gap = float((x - out.detach().to(x.dtype)).abs().max()) if x.numel() else 0.0
        bound = _bound(out, len(sizes))
        for part, gates in parts:
            self._append(part, gates, gap, bound)

    def _keep_step(self, name: str, products: tuple[Tensor, Tensor], before: Any, after: Any) -> None:
        if self.recorder.pauses:
            return
        with self.recorder.muted(), _plain(after[0]):
            wide = checks.accumulate_dtype(after[0].dtype)
            x, p, *state = (t.detach().to(wide).reshape(-1, t.shape[-1]) for t in (*products, *before))
            gates, (h, *_) = run_step(x, p, state)
            gap = float((h - after[0].detach().to(wide).reshape(h.shape)).abs().max()) if h.numel() else 0.0
        steps = self._open.get(name)
        if steps is None or steps.last is not before[0] or len(steps.gates[-1]) != len(gates):
            self._close(name)
            steps = self._open[name] = _OpenSequence()
        steps.gates.append(gates)
        steps.last, steps.gap, steps.bound = after[0], max(steps.gap, gap), _bound(after[0], 1)

    def _close(self, name: str) -> None:
        steps = self._open.pop(name, None)
        if steps is not None:
            self._append(name, torch.stack(steps.gates, -1), steps.gap, steps.bound)

    def _append(self, name: str, gates: Tensor, gap: float, bound: float) -> None:  # "b g u t"
        tolerance = self.recorder.options.tolerance
        bound = bound if tolerance is None else tolerance
        self.recorder.store.reserve(gates.nbytes, name)
        for n, gate in enumerate(GATES[3 if gates.shape[1] == 2 else 4]):
            weights = DenseMap(gates[:, n : n + 1].contiguous())
            self.recorder.add(
                RecordedMap(
                    _joined(name, gate), "cell", weights, certificate=gap, tolerance=bound, captured_from="recurrence"
                )
            )


def run_step(x: Tensor, p: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:  # "b g·u" both
    """The gates of one step, "b g u", and the state after it, from x = W x_t + b, p = U h + b' and the state before.

    GRU: r, z = σ(x + p), n = tanh(x + r ∘ p), h' = n + z ∘ (h − n). LSTM: i, f, o = σ(x + p), g = tanh(x + p),
    c' = f ∘ c + i ∘ g, h' = o ∘ tanh(c').
    """
    if len(state) == 1:
        (xr, xz, xn), (pr, pz, pn) = x.chunk(3, -1), p.chunk(3, -1)
        r, z = torch.sigmoid(xr + pr), torch.sigmoid(xz + pz)
        n = torch.tanh(xn + r * pn)
        return torch.stack([r, z], 1), (n + z * (state[0] - n),)
    i, f, g, o = (x + p).chunk(4, -1)
    i, f, o = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o)
    c = f * state[1] + i * torch.tanh(g)
    return torch.stack([i, f, o], 1), (o * torch.tanh(c), c)


def run_sequence(
    rnn: nn.RNNBase, suffix: str, x: Tensor, sizes: Sequence[int], first: Sequence[Tensor], is_reverse: bool
) -> tuple[Tensor, Tensor]:  # "r d" -> "r g u", "r h"
    """The gates and h of one layer in one direction; step t has the first sizes[t] sequences."""
    weight = [getattr(rnn, f"{kind}_{suffix}", None) for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    projection = getattr(rnn, f"weight_hr_{suffix}", None)
    product = _product(x, weight[0], weight[2])
    state = [t.detach().to(x.dtype).clone() for t in first]
    starts = [0, *accumulate(sizes)][:-1]
    gates: list[Any] = [None] * len(sizes)
    outputs: list[Any] = [None] * len(sizes)
    for t in reversed(range(len(sizes))) if is_reverse else range(len(sizes)):
        n = sizes[t]
        running = [part[:n] for part in state]
        past = _product(running[0], weight[1], weight[3])
        gates[t], after = run_step(product[starts[t] : starts[t] + n], past, running)
        if projection is not None:
            after = (_product(after[0], projection, None), *after[1:])
        outputs[t] = after[0]
        for part, new in zip(state, after, strict=True):
            part[:n] = new
    return torch.cat(gates), torch.cat(outputs)


def _product(x: Tensor, weight: Any, bias: Any) -> Tensor:
    wide = checks.accumulate_dtype(x.dtype)
    return F.linear(x.detach().to(wide), weight.detach().to(wide), None if bias is None else bias.detach().to(wide))


def _states(rnn: nn.RNNBase, first: Any, rows: Tensor, count: int) -> list[list[list[Tensor]]]:
    """The states before the first step by layer and direction; zeros if none are given."""
    directions, parts = 2 if rnn.bidirectional else 1, 2 if isinstance(rnn, nn.LSTM) else 1
    if first is None:
        widths = [getattr(rnn, "proj_size", 0) or rnn.hidden_size, rnn.hidden_size][:parts]
        zeros = [rows.new_zeros(count, width) for width in widths]
        return [[zeros] * directions] * rnn.num_layers
    initial = first if isinstance(first, tuple) else (first,)
    return [[[part[n * directions + d] for part in initial] for d in range(directions)] for n in range(rnn.num_layers)]


def _padded(gates: Tensor, sizes: Sequence[int], rank: Tensor | None) -> Tensor:  # "r g u" -> "b g u t"
    """The rows of every sequence over time, zero behind its end, in the order of the batch."""
    padded = gates.new_zeros(sizes[0], *gates.shape[1:], len(sizes))
    start = 0
    for t, n in enumerate(sizes):
        padded[:n, ..., t] = gates[start : start + n]
        start += n
    return padded if rank is None else padded.index_select(0, rank.to(padded.device))


def _bound(out: Tensor, steps: int) -> float:
    """The rounding error of a state after this many steps; the state is at most 1 in size."""
    return ROUNDING.get(out.dtype, 4e-2) * max(1.0, steps**0.5)


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str) -> Any:
    return args[place] if len(args) > place else kwargs.get(name)


def _joined(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part


@contextmanager
def _plain(like: Tensor) -> Iterator[None]:
    """No graph, no inference mode and no autocast: the gates are normal tensors of at least float32."""
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(like.device.type, enabled=False):
        yield
