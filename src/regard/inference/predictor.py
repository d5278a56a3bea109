"""Predictor: one object for everything a trained model can do: predict, evaluate, record, view, serve, be attacked.

predictor = regard.load("runs/en-de")
outputs = predictor.predict(["ein Hund"])                          one output per input
print(predictor.text(outputs[0]), predictor.json(outputs[0]))
outputs, recording = predict_recorded(predictor, ["ein Hund"])     the same outputs, and the attention behind them
predictor.loss(["ein Hund"], ["a dog"]).sum().backward()           gradients for attacks and attributions
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, Generic, Literal, TypeVar

import torch
from torch import Tensor, nn

from regard.inference.bounded_classifier import PictureClassifier
from regard.inference.counted_note import CountedNote
from regard.inference.embedded_classifier import EmbeddedClassifier
from regard.inference.endpoint import Endpoint
from regard.inference.exportable import Exportable
from regard.inference.limits import Limits
from regard.inference.structured_predictor import StructuredPredictor
from regard.recording.recording import Recording
from regard.recording.run import TextAlignment, recorded
from regard.viz.show import show

_NO_PICTURE = "--picture draws attention, and this model has none; leave it out"
Input = TypeVar("Input")
Output = TypeVar("Output")
# entered around the pass in which the model attends to what its outputs are made of
Observe = Callable[[], AbstractContextManager[Any]]


class Predictor(ABC, Generic[Input, Output]):
    """A model with everything that it needs to answer: vocabularies, classes, sizes.

    `options` of `predict` is the dataclass that the task declares as its `Predict`; None stands for its defaults.
    """

    model: nn.Module
    # the key of an input in the JSON that `regard predict --json` prints
    input_key: ClassVar[str] = "text"
    # its endpoint, by module and name, as the module needs pydantic, of the extra "serve"; empty if it is not served
    endpoint_class: ClassVar[str] = ""

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    def read(self, argument: str) -> Input:
        """The input that an argument of the command line names: a sentence as it is, or the image at a path."""
        return argument  # type: ignore[return-value]

    @abstractmethod
    def predict(
        self, inputs: Sequence[Input], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[Output]:
        """One output per input, the same as if it were predicted alone; `observe()` is entered around the pass that
        attends. `first` is the number of the first input where the inputs are part of a longer stream: whatever is
        sampled for an input is sampled by its number.
        """

    def stream_text(self, example: Input, options: Any = None) -> "Generator[str, None, Output] | None":
        """The text of an output in pieces, each as soon as it is known, and then the output; None if the text is known
        only when all of it is.
        """
        return None

    @abstractmethod
    def loss(self, inputs: Sequence[Input], targets: Sequence[Any]) -> Tensor:  # -> "b"
        """The training loss of each input, without smoothing and dropout, differentiable."""

    @abstractmethod
    def text(self, output: Output) -> str:
        """The output as a line of text."""

    @abstractmethod
    def json(self, output: Output) -> dict[str, Any]:
        """The output as values of JSON."""

    def margin(self, output: Output) -> float:
        """The distance of the closest decision behind the output to another, relative to the size of its scores: where
        it is within the noise of float32, the output may depend on the other inputs. Infinite: nothing was decided."""
        return math.inf

    def summary(self, output: Output) -> str:
        """The output in a few words, beside a recording."""
        return self.text(output)

    @property
    def embedding(self) -> nn.Module | None:
        """The layer that embeds the tokens of the input; None if the inputs are no tokens."""
        return None

    def embeddings(self, inputs: Sequence[Input]) -> Tensor:  # -> "b t d"
        """The embedded tokens of the inputs, padding included, as the model reads them."""
        raise TypeError(
            f"{type(self).__name__} takes no tokens, so it has no embeddings; use the gradient of the input"
        )

    @property
    def explains(self) -> Literal["class", "part"] | None:
        """The output that `regard.attribute` explains: a class, a part of the output such as a tag, or neither."""
        if isinstance(self, StructuredPredictor):
            return "part"
        return "class" if isinstance(self, EmbeddedClassifier | PictureClassifier) else None

    # The attention behind an output

    def check_attends(self, what: str) -> None:
        """Raises, before anything is computed, if the model has no attention; `what` is the option that needs it."""

    def label(self, recording: Recording, example: Input, output: Output) -> Recording:
        """The recording of one input with the names of its rows and columns, and with facts about the input."""
        return recording

    def alignment(self, example: Input, output: Output) -> TextAlignment | None:
        """The attention of each target token to the source tokens; None if the model does not map text to text."""
        return None

    def image(self, example: Input) -> Tensor | None:  # -> "h w 3"
        """The image under the attention maps of an input; None if the input is no image."""
        return None

    def draw(self, recording: Recording, example: Input, output: Output, path: Path) -> Path:
        """The attention behind one output as a figure or a page."""
        image = self.image(example)
        over = image if image is not None and any(item.grid is not None for item in recording) else None
        return show(recording, image=over).save(path)

    # Services

    def notes(self, output: Output) -> Mapping[CountedNote, int]:
        """Sentences for people about the output, or about its input, with the numbers that they begin with; the numbers
        of all outputs are summed."""
        return {}

    def blank(self) -> Input | None:
        """An input without content, of a model whose recording alone shows whether it attends; None: `check_attends`
        knows it."""
        return None

    def session(self, options: Any, picture: Path | None) -> "PredictionSession":
        """The notes and the picture of a `regard predict`. Raises before anything is printed if the model has no
        attention to draw."""
        if picture is not None:
            self.check_attends("--picture")
            blank = self.blank()
            if blank is not None and not len(predict_recorded(self, [blank])[1]):
                raise ValueError(_NO_PICTURE)
        return PredictionSession(self, options, picture)

    def endpoint(self, limits: Limits, *, run: str, step: int) -> Endpoint:
        """The endpoint that answers requests over HTTP for this model; `run` and `step` name its weights."""
        if not self.endpoint_class:
            raise ValueError(f"{type(self).__name__} is not served over HTTP; use regard predict")
        endpoint: Endpoint = resolve_name(self.endpoint_class)(self, limits, run=run, step=step)
        return endpoint

    def exportable(self) -> Exportable:
        """The parts that files of other libraries can hold."""
        raise ValueError(
            f"{type(self).__name__} is not exported; translators, language models, masked language models, encoders of "
            "texts and classifiers of texts are"
        )

    @property
    def is_exported(self) -> bool:
        """Whether `exportable` has parts to return."""
        return type(self).exportable is not Predictor.exportable


class PredictionSession:
    """The course of one `regard predict`: outputs come in chunks, notes and the picture are made at the end."""

    def __init__(self, predictor: Predictor[Any, Any], options: Any, picture: Path | None) -> None:
        self.predictor, self.options, self.picture = predictor, options, picture
        self.inputs: list[Any] = []
        self.counts: Counter[CountedNote] = Counter()

    def check(self, count: int) -> None:
        """Raises before anything is predicted if the picture cannot show this many inputs."""
        if self.picture is not None and count > 1:
            raise ValueError(f"--picture draws the attention behind one output, and {count} are asked for; name one")

    def add(self, inputs: Sequence[Any], outputs: Sequence[Any], first: int) -> None:
        """Takes note of a chunk of inputs, the first of which has this number, and of their outputs."""
        if self.picture is not None:
            self.inputs += inputs
        for output in outputs:
            self.counts.update(self.predictor.notes(output))

    def finish(self) -> list[str]:
        """Draws the picture; returns notes for people."""
        notes = self.notes()
        return notes if self.picture is None else [*notes, *self.draw(self.picture)]

    def notes(self) -> list[str]:
        """Sentences about all inputs and outputs."""
        return [note.text(count) for note, count in self.counts.items() if count]

    def draw(self, path: Path) -> list[str]:
        """Draws the picture; returns notes about it."""
        if not self.inputs:
            return []
        output, recording = labelled_recording(self.predictor, self.inputs[0], self.options)
        if not len(recording):
            raise ValueError(_NO_PICTURE)
        self.predictor.draw(recording, self.inputs[0], output, path)
        return [f"the attention is drawn in {path}"]


def predict_recorded(
    predictor: Predictor[Input, Output],
    inputs: Sequence[Input],
    options: Any = None,
    record: Callable[[], AbstractContextManager[Recording]] | None = None,
    layers: Sequence[str] = (),
    gates: bool = False,
) -> tuple[list[Output], Recording]:
    """The outputs, and what these layers (none given: all) attended to on the way; `gates` adds those of recurrent
    cells.

    `record` makes the recording, such as `lambda: regard.record(predictor.model, budget=…)`.
    """
    make = (lambda: recorded(predictor.model, layers, gates=gates)) if record is None else record
    recordings: list[Recording] = []

    @contextmanager
    def observe() -> Iterator[None]:
        with make() as recording:
            yield
        recordings.append(recording)

    outputs = predictor.predict(inputs, options, observe)
    (recording,) = recordings
    return outputs, recording


def labelled_recording(
    predictor: Predictor[Input, Output],
    example: Input,
    options: Any = None,
    layers: Sequence[str] = (),
    *,
    gates: bool = False,
    **about: str,
) -> tuple[Output, Recording]:
    """The output for one input, and the recording with its labels; `about` is added to the facts of the recording."""
    (output,), recording = predict_recorded(predictor, [example], options, layers=layers, gates=gates)
    recording = predictor.label(recording, example, output)
    text = {"text": example} if isinstance(example, str) else {}
    return output, replace(recording, about={**text, **recording.about, **about})


def check_texts(inputs: Sequence[str]) -> None:
    """Raises unless the inputs of a predictor are several texts."""
    is_several = isinstance(inputs, Iterable) and not isinstance(inputs, str)
    if not is_several or not all(isinstance(text, str) for text in inputs):
        raise TypeError(f"inputs must be a list of texts, got {inputs!r}; try predictor.predict(['a text'])")
