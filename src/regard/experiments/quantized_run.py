"""quantize_run: a run of its own with the 8-bit weights of another, and the loss of quality that they cost."""

import copy
import dataclasses
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.attn.quantized_linear import QuantizedLinear
from regard.common import atomic_files, json_files
from regard.experiments.attacked_run import Report, silent
from regard.interop.quantize import is_quantized, quantizable, quantize
from regard.kernels.int8_linear import quantize_matrix
from regard.tasks.loading import Weights, load_run
from regard.tasks.registry import config_from_record, is_released
from regard.training import checkpoint
from regard.training.protocol import TrainingProblem, ValidationResult
from regard.training.run_folder import BEST, CONFIG, FORMAT, QUANTIZATION, RECORD, RunRecord, check_holds_no_run

# rows of an input that the error of a layer is measured with
_ROWS = 64


@dataclass(frozen=True)
class QuantizedRun:
    """The facts of a run with 8-bit weights, as its folder records them."""

    run: str  # the folder of the run that it was made from
    weights: str
    metric: str
    before: Mapping[str, float]  # values of the validation in float32
    after: Mapping[str, float]  # and with 8-bit weights
    loss: float  # how much worse the metric is
    activations: str
    bytes_before: int
    bytes_after: int
    errors: Mapping[str, float]  # relative error of each layer with 8-bit weights
    kept: Mapping[str, str]  # layers in float32, and why
    format: int = 1

    def explain(self) -> str:
        """The metric and the size before and after, and a table of the layers."""
        share = self.bytes_after / self.bytes_before
        size = f"{self.bytes_after:,} bytes of weights, {share:.3f} of {self.bytes_before:,}"
        before, after = self.before[self.metric], self.after[self.metric]
        width = max(map(len, [*self.errors, *self.kept, "layer"])) + 2
        return "\n".join(
            [
                f"{self.metric} {before:.4g} in float32, {after:.4g} in 8 bits; {size}",
                f"\n{'layer':{width}}{'weights':10}error or reason",
                *(f"{name:{width}}{'8 bits':10}{error:.2%}" for name, error in self.errors.items()),
                *(f"{name:{width}}{'float32':10}{reason}" for name, reason in self.kept.items()),
            ]
        )


def quantize_run(
    run: Path,
    out: Path,
    *,
    weights: Weights | None = None,
    activations: str = "int8",
    tolerance: float = 0.02,
    most_error: float = 0.1,
    report: Report = silent,
) -> QuantizedRun:
    """Writes the run with 8-bit weights into `out`, and what they cost in its metric on its validation data.

    Layers whose relative error is above `most_error` stay in float32; if the metric then loses more than `tolerance`
    of its value, the layers of largest error follow, 1, 2, 4 …, until it does not.
    """
    _check(run, out, tolerance, most_error)
    record = RunRecord.read(run)
    loaded = load_run(run, weights, "cpu")
    model = loaded.predictor.model
    if is_quantized(model):
        raise ValueError(f"{run} has 8-bit weights already; name the run that it was made from")
    problem = config_from_record(record, run).prepare(run, new=False)
    with first_inputs(model) as inputs:
        before = _validate(problem, model)
    report(f"float32: {_line(before)}")
    errors = layer_errors(model, inputs)
    ranked = sorted(errors, key=lambda name: -errors[name])
    count = sum(error > most_error for error in errors.values())
    while True:
        quantized = copy.deepcopy(model)
        reasons = {name: f"its error is {errors[name]:.1%}" for name in ranked[:count]}
        quantization = quantize(quantized, activations=activations, keep=reasons)
        after = _validate(problem, quantized)
        loss = (before.value - after.value) if before.higher_is_better else (after.value - before.value)
        report(f"8 bits, {len(quantization.layers)} layers: {_line(after)}")
        if loss <= tolerance * abs(before.value):
            break
        if count >= len(ranked) - 1:
            raise ValueError(
                f"{before.main} loses {loss:.4g} of {before.value:.4g}, more than {tolerance:.1%}, whichever layers "
                f"stay in float32; allow more, such as tolerance={2 * tolerance:g}, or take activations='float32'"
            )
        count = min(max(2 * count, 1), len(ranked) - 1)
    quantized_run = QuantizedRun(
        run=str(run.absolute()),
        weights=loaded.weights,
        metric=before.main,
        before=dict(before.values),
        after=dict(after.values),
        loss=loss,
        activations=quantization.activations,
        bytes_before=quantization.bytes_before,
        bytes_after=quantization.bytes_after,
        errors={name: errors[name] for name in quantization.layers},
        kept={name: reasons.get(name, reason) for name, reason in quantization.kept.items()},
    )
    _write(run, out, record, quantized, quantized_run, loaded.step)
    return quantized_run


@contextmanager
def first_inputs(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """After the context, some rows of the first input of every layer that can have 8-bit weights.

    Every hook removes itself, so that later calls are as fast as they were.
    """
    inputs: dict[str, Tensor] = {}
    handles: dict[str, Any] = {}

    def hook(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def keep(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            inputs[name] = arguments[0].detach().flatten(0, -2)[:_ROWS].clone()
            handles[name].remove()

        return keep

    for name in quantizable(model):
        module = model.get_submodule(name)
        if not isinstance(module, nn.Embedding):
            handles[name] = module.register_forward_pre_hook(hook(name))
    try:
        yield inputs
    finally:
        for handle in handles.values():
            handle.remove()


def layer_errors(model: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, float]:
    """|W x − W₈ x₈| / |W x| of every layer that can have 8-bit weights; x is normal for a layer without an input.

    The error of an embedding is that of its rows.
    """
    errors = {}
    trial = copy.deepcopy(model)
    quantization = quantize(trial)
    for name in quantization.layers:
        module, layer = model.get_submodule(name), trial.get_submodule(name)
        weight = _weight(module)
        if isinstance(layer, QuantizedLinear):
            drawn = torch.randn(_ROWS, weight.shape[1], generator=torch.Generator().manual_seed(0))
            x = inputs.get(name, drawn)
            exact = x @ weight.T
            error = layer(x) - (exact if layer.bias is None else exact + layer.bias)
        else:
            exact, error = weight, quantize_matrix(weight).dequantize() - weight
        errors[name] = float(error.norm() / exact.norm().clamp(min=1e-30))
    return errors


def _weight(module: Any) -> Tensor:  # "f d"
    weight: Tensor = module.weight.detach()
    return weight if isinstance(module, nn.Linear | nn.Embedding) else weight.T


def _check(run: Path, out: Path, tolerance: float, most_error: float) -> None:
    for name, value in (("tolerance", tolerance), ("most_error", most_error)):
        if not 0 <= value < float("inf"):
            raise ValueError(f"{name} must be 0 or more and finite, got {value}; try 0.02")
    if run.is_dir() and is_released(run):
        raise ValueError(
            f"{run} is a released model, which has no validation data to measure the loss on; "
            "use --quantization int8 where you load it"
        )
    if (out / RECORD).exists():
        raise FileExistsError(f"out={str(out)!r} holds a run already; name a new folder")
    check_holds_no_run(out)
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} is not empty; take a new folder")


@torch.no_grad()
def _validate(problem: TrainingProblem[Any, Any], model: nn.Module) -> ValidationResult:
    torch.manual_seed(0)
    return problem.validate(model.eval())


def _line(result: ValidationResult) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in result.values.items())


def _write(run: Path, out: Path, record: RunRecord, model: nn.Module, quantized: QuantizedRun, step: int) -> None:
    """Writes the folder: files of the task, weights, the facts above, and the record last."""
    atomic_files.make_folder(out)
    config = config_from_record(record, run)
    names: Sequence[str] = [name for name in config.run_files if (run / name).exists()]
    for name in [*names, *([CONFIG] if (run / CONFIG).exists() else [])]:
        atomic_files.make_folder((out / name).parent)
        if (run / name).is_dir():
            shutil.copytree(run / name, out / name)
        else:
            atomic_files.write_atomically(out / name, [(run / name).read_bytes()])
    score = {name: float(value) for name, value in quantized.after.items()}
    facts = {"step": step, "score": score, "main": quantized.metric, "quantization": quantized.activations}
    checkpoint.write(out / BEST, checkpoint.collect(model), facts)
    atomic_files.write_atomically(out / QUANTIZATION, [json_files.with_checksum(dataclasses.asdict(quantized))])
    rewritten = dataclasses.replace(record, options=config.to_json(), format=FORMAT, initial=None)
    rewritten.with_files(out, names).write(out)
