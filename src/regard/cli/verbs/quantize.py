"""regard quantize: a run with 8-bit weights, and the quality that they cost."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from regard.cli.output import note
from regard.cli.parsing.parser import parse
from regard.common.options.fields import flag, left_open, option, positional


@dataclass(frozen=True)
class QuantizeOptions:
    """Write a run whose weights have 8 bits: about a quarter of the size, and faster on a processor.

    The loss of quality is measured in the run's own metric on its validation data. Layers that lose too much stay in
    float32; a table lists them. The new run is used as any other, and cannot be trained.

    Example: regard quantize runs/en-de --out runs/en-de-int8
    """

    run: Path = positional()
    """The folder of a run."""
    out: Path = option(metavar="FOLDER")
    """A new folder for the run with 8-bit weights."""
    weights: Literal["best", "last", "average"] | None = left_open("best")
    """The weights of the best validation, of the last step, or their average if one was made."""
    activations: Literal["int8", "float32"] = "int8"
    """Activations are rounded to 8 bits as well, or stay in float32: less error, less speed."""
    tolerance: float = 0.02
    """The share of its value that the metric may lose; layers return to float32 until it does not lose more."""
    most_error: float = 0.1
    """Layers whose outputs have a larger relative error than this stay in float32."""
    json: bool = flag()
    """Print one JSON object instead."""


def run(args: Sequence[str]) -> int:
    options = parse(QuantizeOptions, "regard quantize", args)
    import torch

    from regard.experiments.quantized_run import quantize_run

    torch.set_num_threads(1)
    quantized = quantize_run(
        options.run,
        options.out,
        weights=options.weights,
        activations=options.activations,
        tolerance=options.tolerance,
        most_error=options.most_error,
        report=note,
    )
    if options.json:
        print(json.dumps({**asdict(quantized), "out": str(options.out)}, indent=2, ensure_ascii=False))
        return 0
    print(f"{quantized.explain()}\n\nWritten to {options.out}.")
    return 0
