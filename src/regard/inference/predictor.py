"""Predictor: one object answers for a run, whoever asks: predict, evaluate, validate, record, view, serve, attack.

predictor = regard.load("runs/en-de")
outputs = predictor.predict(["ein Hund"])                          one output per input
print(predictor.text(outputs[0]), predictor.json(outputs[0]))
outputs, recording = predict_recorded(predictor, ["ein Hund"])     the same outputs, and the attention behind them
predictor.loss(["ein Hund"], ["a dog"]).sum().backward()           gradients for attacks and attributions
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from torch import Tensor, nn

from regard.inference.endpoint import Endpoint
from regard.inference.limits import Limits
from regard.recording.record import record
from regard.recording.recording import Recording
from regard.viz.show import show

Input = TypeVar("Input")
Output = TypeVar("Output")
# entered around the pass in which the model attends to what its outputs are made of
Observe = Callable[[], AbstractContextManager[Any]]


class Predictor(ABC, Generic[Input, Output]):
    """A model with everything that it needs to answer: vocabularies, classes, sizes.

    `options` of `predict` is the dataclass that the task declares as its `Predict`; None stands for its defaults.
    """

    model: nn.Module

    @abstractmethod
    def read(self, argument: str) -> Input:
        """The input that a word of the command line names: a sentence, or the path of a picture."""

    @abstractmethod
    def predict(
        self, inputs: Sequence[Input], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[Output]:
        """One output per input, the same as if it were predicted alone; `observe()` is entered around the pass that
        attends. `first` is the number of the first input where the inputs are part of a longer stream: whatever is
        sampled for an input is sampled by its number.
        """

    @abstractmethod
    def loss(self, inputs: Sequence[Input], targets: Sequence[Any]) -> Tensor:  # -> "b"
        """The training loss of each input, without smoothing and dropout, differentiable."""

    @abstractmethod
    def text(self, output: Output) -> str:
        """The output as a line of text."""

    @abstractmethod
    def json(self, output: Output) -> dict[str, Any]:
        """The output as values of JSON."""

    @property
    def embedding(self) -> nn.Module | None:
        """The layer that embeds the tokens of the input; None if the inputs are no tokens."""
        return None

    def embeddings(self, inputs: Sequence[Input]) -> Tensor:  # -> "b t d"
        """The embedded tokens of the inputs, padding included, as the model sees them."""
        raise TypeError(
            f"{type(self).__name__} takes no tokens, so it has no embeddings; use the gradient of the input"
        )

    def label(self, recording: Recording, given: Input, output: Output) -> Recording:
        """The recording of one input with the names of its rows and columns, and with facts about the input."""
        return recording

    def image(self, given: Input) -> Tensor | None:  # -> "h w 3"
        """The picture under the attention maps of an input; None if the input is no picture."""
        return None

    def draw(self, recording: Recording, given: Input, output: Output, path: Path) -> Path:
        """The attention behind one output as a figure or a page."""
        image = self.image(given)
        over = image if image is not None and any(item.grid is not None for item in recording) else None
        return show(recording, image=over).save(path)

    def endpoint(self, limits: Limits) -> Endpoint:
        """What answers requests over HTTP for this model."""
        raise ValueError(f"{type(self).__name__} is not served over HTTP; use regard predict")


def predict_recorded(
    predictor: Predictor[Input, Output], inputs: Sequence[Input], options: Any = None, layers: Sequence[str] = ()
) -> tuple[list[Output], Recording]:
    """The outputs, and what these layers (none given: all) attended to on the way."""
    recordings: list[Recording] = []

    @contextmanager
    def observe() -> Iterator[None]:
        with record(predictor.model, layers=list(layers) or None) as recording:
            yield
        recordings.append(recording)

    outputs = predictor.predict(inputs, options, observe)
    (recording,) = recordings
    return outputs, recording


def labelled_recording(
    predictor: Predictor[Input, Output], given: Input, options: Any = None, layers: Sequence[str] = (), **about: str
) -> tuple[Output, Recording]:
    """The output for one input, and the recording with its labels; `about` is added to the facts of the recording."""
    (output,), recording = predict_recorded(predictor, [given], options, layers)
    recording = predictor.label(recording, given, output)
    return output, replace(recording, about={**recording.about, **about})
