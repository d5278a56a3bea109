"""regard embed: `regard predict` for the runs of embed; with --out the vectors of all lines go into one .npy file."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from regard.cli import run_options
from regard.cli.input_lines import input_lines
from regard.cli.output import check_writable, note
from regard.cli.parsing.output_paths import not_an_input
from regard.cli.run_options import parse_with_run
from regard.cli.verbs import predict
from regard.common.options.fields import option, positional
from regard.tasks.registry import TASKS

if TYPE_CHECKING:
    from regard.tasks.embed.predictor import EmbedPredictor

_TASK = "embed"


@dataclass(frozen=True)
class EmbedOptions(predict.PredictOptions):
    """Vectors of texts by a trained encoder: on stdout, or a row per line of --file in the .npy file of --out.

    RUN is a run of embed, or a folder with a BERT in transformers' layout. With --neighbours, prints the lines of a
    file that are nearest to each text. An empty line has a row, too: the vector of a text without words.

    Example: regard embed runs/dates "3 April 2021" --neighbours dates.txt --top 3
    """

    inputs: tuple[str, ...] = positional((), metavar="[TEXT ...]")
    """Texts to embed."""
    out: Path | None = option(None, metavar="FILE")
    """Write all vectors into this .npy file, a row per line, in float32; nothing is printed on stdout."""


def run(args: Sequence[str]) -> int:
    options, config = parse_with_run(EmbedOptions, "regard embed", args, "Predict", {_TASK: TASKS[_TASK]})
    if config.name != _TASK or options.out is None:
        return predict.predict(EmbedOptions, "embed", args, task=_TASK)
    of_task = config.Predict(**options.task)
    for name, value in (("--json", options.json), ("--picture", options.picture), ("--neighbours", of_task.neighbours)):
        if value:
            raise ValueError(f"--out {options.out} and {name} exclude each other; give one of them")
    check_writable("--out", options.out, (".npy",))
    not_an_input(
        "--out", options.out, options.run, {"the file of --file": [] if options.file is None else [options.file]}
    )
    predict.check_inputs(options, config, of_task)
    predictor = cast("EmbedPredictor", run_options.load(options.run, options.load).predictor)
    _write_vectors(predictor, options)
    return 0


def _write_vectors(predictor: "EmbedPredictor", options: EmbedOptions) -> None:
    import numpy as np

    from regard.common import atomic_files
    from regard.tasks.embed.predictor import EMPTY_VECTORS

    assert options.out is not None
    outputs = [output for lines in input_lines(options.inputs, options.file) for output in predictor.predict(lines)]
    vectors = np.stack([output.vector for output in outputs]) if outputs else np.zeros((0, predictor.model.width), "f4")
    content = io.BytesIO()
    np.save(content, vectors)
    atomic_files.write_atomically(options.out, [content.getvalue()])
    note(f"{len(vectors):,} vectors of {vectors.shape[1]:,} numbers are in {options.out}")
    if count := sum(output.is_empty for output in outputs):
        note(EMPTY_VECTORS.text(count))
