"""Verbs that are `regard predict` for the runs of one task, some with an output of their own."""

import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from regard.cli.output import note
from regard.cli.parsing.output_paths import check_output
from regard.cli.verbs.predict import PredictOptions, input_chunks, predict
from regard.common.options.fields import option, positional
from regard.tasks.base import TaskConfig


@dataclass(frozen=True)
class TranslateOptions(PredictOptions):
    """Translate text with a trained model: one line on stdout per line of text, and nothing else.

    Text comes from the words behind RUN (quote a sentence; "-" is stdin), from --file, from a pipe, or is asked for.

    Example: regard translate runs/en-de "A dog runs in the snow." --picture attention.html
    """

    inputs: tuple[str, ...] = positional((), metavar="[TEXT ...]")
    """Lines to translate."""
    picture: Path | None = option(None, metavar="FILE")
    """Draw the attention to the source behind each word: .html, .png, .svg, .pdf or .txt."""


@dataclass(frozen=True)
class GenerateOptions(PredictOptions):
    """Continue a prompt with a trained language model: the prompt and its continuation on stdout, as it is sampled.

    With several prompts, --count, --file, --json or a pipe, every text is one line as in `regard predict`: line breaks
    are written as \\n. Quote a prompt; "" begins a new document, and "-" is stdin.

    Example: regard generate runs/shakespeare "ROMEO:" --tokens 300 --top-p 0.9
    """

    inputs: tuple[str, ...] = positional((), metavar="[PROMPT ...]")
    """Prompts to continue."""


@dataclass(frozen=True)
class EmbedOptions(PredictOptions):
    """Vectors of texts by a trained encoder: on stdout, or a row per line of --file in the .npy file of --out.

    RUN is a run of embed, or a folder with a BERT in transformers' layout. With --neighbours, prints the lines of a
    file that are nearest to each text. An empty line has a row, too: the vector of a text without words.

    Example: regard embed runs/dates "3 April 2021" --neighbours dates.txt --top 3
    """

    inputs: tuple[str, ...] = positional((), metavar="[TEXT ...]")
    """Texts to embed."""
    out: Path | None = option(None, metavar="FILE")
    """Write all vectors into this .npy file, a row per line, in float32; nothing is printed on stdout."""

    def __post_init__(self) -> None:
        others = {"--json": self.json, "--picture": self.picture, "--neighbours": self.task.get("neighbours")}
        for name, value in others.items():
            if self.out is not None and value:
                raise ValueError(f"--out {self.out} and {name} exclude each other; give one of them")
        files = {"the file of --file": [] if self.file is None else [self.file]}
        check_output("--out", self.out, self.run, (".npy",), files)


@dataclass(frozen=True)
class WatchOptions:
    """Watch an agent play: a line per move with what it sees, what it does, the reward, the value that it expects, and
    the past moves that it attends to. The episode is one that it was not trained on.

    Example: regard watch runs/agent 3 --picture episode.png
    """

    run: Path = positional()
    """The folder of a run of agent."""
    episode: int = positional(0)
    """The number of the episode."""
    picture: Path | None = option(None, metavar="FILE")
    """Draw the episode above, and the attended past moves below: .html, .png, .svg or .pdf."""
    task: dict[str, Any] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)
    # options of `regard predict` that an episode has no use for
    file: ClassVar[None] = None
    text_column: ClassVar[None] = None

    def __post_init__(self) -> None:
        if self.episode < 0:
            raise ValueError(f"an episode is a whole number, 0 or more, got {self.episode}; try 0")

    @property
    def inputs(self) -> tuple[str, ...]:
        return (str(self.episode),)


def _stream_prompt(predictor: Any, options: GenerateOptions, config: TaskConfig, task_options: Any) -> bool:
    """Prints a single prompt and its continuation as it is sampled."""
    is_single = len(options.inputs) == 1 and options.inputs != ("-",) and options.file is None
    if not is_single or options.json or task_options.count > 1:
        return False
    (prompt,) = options.inputs
    session = predictor.session(task_options, options.picture)
    # raises for a prompt that cannot be continued before anything is printed
    pieces = predictor.stream(prompt, task_options)
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece.text)
        sys.stdout.flush()
        if piece.whole is not None:
            session.add([prompt], [predictor.output(prompt, [piece.whole])], 0)
    sys.stdout.write("\n")
    for text in session.finish():
        note(text)
    return True


def _write_vectors(predictor: Any, options: EmbedOptions, config: TaskConfig, task_options: Any) -> bool:
    """Writes the vectors of all lines into the file of --out."""
    if options.out is None:
        return False
    import numpy as np

    from regard.common import atomic_files
    from regard.tasks.embed.predictor import EMPTY_VECTORS

    outputs = [output for lines in input_chunks(options, config) for output in predictor.predict(lines)]
    vectors = np.stack([output.vector for output in outputs]) if outputs else np.zeros((0, predictor.model.width), "f4")
    content = io.BytesIO()
    np.save(content, vectors)
    atomic_files.write_atomically(options.out, [content.getvalue()])
    note(f"{len(vectors):,} vectors of {vectors.shape[1]:,} numbers are in {options.out}")
    if count := sum(output.is_empty for output in outputs):
        note(EMPTY_VECTORS.text(count))
    return True


def _print_episode(predictor: Any, options: WatchOptions, config: TaskConfig, task_options: Any) -> bool:
    view, outcome = predictor.watch(options.episode, task_options)
    print("\n".join([view.title, *view.lines(), outcome]))
    if options.picture is not None:
        note(f"the episode is drawn in {view.save(options.picture)}")
    return True


class Alias(NamedTuple):
    """The task of a verb, its options, and a function for its own output, which returns False to predict as usual."""

    task: str
    options: type
    output: Callable[[Any, Any, TaskConfig, Any], bool] | None = None


ALIASES = {
    "translate": Alias("translate", TranslateOptions),
    "generate": Alias("language-model", GenerateOptions, _stream_prompt),
    "embed": Alias("embed", EmbedOptions, _write_vectors),
    "watch": Alias("agent", WatchOptions, _print_episode),
}


def run(args: Sequence[str], verb: str) -> int:
    alias = ALIASES[verb]
    return predict(alias.options, verb, args, alias.task, alias.output)
