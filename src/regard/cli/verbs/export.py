"""regard export: a trained model as files of other libraries."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from regard.cli.parsing.parser import parse
from regard.common.options.fields import left_open, option, positional


@dataclass(frozen=True)
class ExportOptions:
    """Write a trained model in the format of another library, with its tokenizer.

    A model that the format cannot represent is refused, and the reason names the part that it does not have.

    Example: regard export runs/en-de --to ctranslate2 en-de-ct2
    """

    run: Path = positional()
    """The folder of a run, or of a released model."""
    folder: Path = positional(metavar="FOLDER")
    """A new folder for the files."""
    to: Literal["transformers", "ctranslate2", "onnx", "torch"] = option(metavar="FORMAT")
    """The library that reads the files: transformers, ctranslate2, onnx or torch."""
    weights: Literal["best", "last", "average"] | None = left_open("best")
    """The weights of the best validation, of the last step, or their average if one was made."""


def run(args: Sequence[str]) -> int:
    options = parse(ExportOptions, "regard export", args)
    import torch

    from regard.export import export
    from regard.tasks.loading import load_run
    from regard.tasks.registry import describe, is_released

    torch.set_num_threads(1)
    loaded = load_run(options.run, options.weights, "cpu")
    if options.to == "transformers" and is_released(options.run):
        raise ValueError(f"{options.run} is in transformers' layout already; copy the folder")
    if not loaded.predictor.is_exported:
        raise ValueError(
            f"{describe(options.run, loaded.config)}, which is not exported; name a run of translate, language-model, "
            "masked-lm, embed or classify-text"
        )
    files = export(loaded.predictor.exportable(), options.folder, options.to)
    width = max(map(len, files)) + 2
    for name, purpose in files.items():
        print(f"{name:{width}}{purpose}")
    print(f"\nWritten to {options.folder}, weights {loaded.weights} of step {loaded.step:,}.")
    return 0
