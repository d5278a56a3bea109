"""transformers' models on regard: `python -m benchmarks.zoo.interface_sweep [names ...] [--again] [--docs]`.

Builds a tiny random model of every class in transformers' model mappings, runs it with attn_implementation="regard" and
with "eager", and compares all outputs. One line of JSON per class is written to results/zoo as soon as it is known, so
that a sweep that was stopped continues; a class has 30 seconds of CPU time and 8 GB.
"""

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import regard
from benchmarks.zoo import eager_weights, interface_page, sweep
from benchmarks.zoo.interface_page import Interfaced
from benchmarks.zoo.sweep import RESULTS, ROOT, SweepCommand, set_seed
from benchmarks.zoo.tiny_models import TinyModel
from regard.interop import transformers_attention

PAGE = ROOT / "docs" / "models-on-regard.md"
# the greatest difference of outputs, relative to their largest number
TOLERANCE = 1e-5


@dataclass
class Calls:
    """The number of attentions that ran on regard."""

    count: int = 0


@contextmanager
def counted() -> Iterator[Calls]:
    """Counts the calls of regard's attention by transformers."""
    from transformers import AttentionInterface

    regard.register_with_transformers()
    calls = Calls()

    def counting(*args: Any, **kwargs: Any) -> Any:
        calls.count += 1
        return transformers_attention.attention_of_transformers(*args, **kwargs)

    AttentionInterface.register(transformers_attention.NAME, counting)
    try:
        yield calls
    finally:
        regard.register_with_transformers()


def compare(name: str, model_type: str, tiny: TinyModel) -> Interfaced:
    """Runs the model by both implementations and compares the outputs."""
    eager = outputs_of(tiny, "eager")
    with counted() as calls:
        try:
            ours = outputs_of(tiny, transformers_attention.NAME)
        except NotImplementedError as error:
            return Interfaced(name, model_type, "refused", str(error)[:400], calls.count)
    if not calls.count:
        return Interfaced(name, model_type, "not used")
    difference = difference_of(eager, ours)
    if difference <= TOLERANCE:
        return Interfaced(name, model_type, "equal", "", calls.count, difference)
    # eager code that differs from transformers' own fused attention is no reference: the fused one is, then
    fused = outputs_of(tiny, "sdpa")
    has_fused = tiny.model.config._attn_implementation == "sdpa"
    between = difference_of(fused, ours)
    verdict = "as sdpa" if has_fused and between <= TOLERANCE else "WRONG"
    reason = f"{difference:.1e} from eager, {f'{between:.1e} from sdpa' if has_fused else 'no sdpa'}"
    return Interfaced(name, model_type, verdict, reason, calls.count, difference)


@torch.no_grad()
def outputs_of(tiny: TinyModel, implementation: str) -> list[Tensor]:
    """All numbers that a model returns."""
    eager_weights.set_implementation(tiny.model, implementation)
    set_seed()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outputs = tiny.model(**tiny.inputs)
    return [t for t in eager_weights.tensors(outputs) if t.is_floating_point()]


def difference_of(ones: Sequence[Tensor], others: Sequence[Tensor]) -> float:
    """The greatest difference of two lists of outputs, relative to the largest number of each; NaN equals nothing."""
    if [t.shape for t in ones] != [t.shape for t in others]:
        return float("inf")
    differences = [
        float((a - b).abs().nan_to_num(torch.inf).max()) / max(float(a.abs().max()), 1e-6)
        for a, b in zip(ones, others, strict=True)
        if a.numel()
    ]
    return max(differences, default=0.0)


def try_class(name: str, model_type: str) -> Interfaced:
    return sweep.try_class(name, model_type, compare, Interfaced)


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS, page: Path = PAGE) -> int:
    command = SweepCommand("interface", __doc__ or "", try_class, Interfaced, interface_page.page)
    return command.run(arguments, results, page)


if __name__ == "__main__":
    sys.exit(main())
