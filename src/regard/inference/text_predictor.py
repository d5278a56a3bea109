"""TextPredictor: a predictor whose inputs are texts, with what its endpoint and its figures need to know."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from regard.inference.chat import ChatAnswer
from regard.inference.limits import Limits
from regard.inference.predictor import Predictor
from regard.recording.recording import Recording
from regard.viz.plots.figure_file import SUFFIXES
from regard.viz.show import show

Output = TypeVar("Output")


class TextPredictor(Predictor[str, Output]):
    """A predictor of texts."""

    endpoint_class = "regard.serve.text_endpoint:TextEndpoint"
    served_as: ClassVar[str]  # POST /v1/NAME
    page_title: ClassVar[str]  # {run} stands for the name of the model
    page_example: ClassVar[str] = "The plot is thin, but the actors are a pleasure to watch."  # filled in on its page
    request_options: ClassVar[type | None] = None
    text_schema: ClassVar[Mapping[str, str]] = MappingProxyType({})  # JSON Schema of the texts that it reads
    model_noun: ClassVar[str] = "this model"  # in sentences about a model without attention

    # The attention behind an output

    @property
    def attends(self) -> bool:
        """Whether the model has attention."""
        return getattr(self.model, "attends", True)

    def check_attends(self, what: str) -> None:
        if not self.attends:
            raise ValueError(f"{what} needs attention, and {self.model_noun} has none; leave {what} out")

    def labelled(
        self,
        recording: Recording,
        text: str,
        said: str,
        queries: Sequence[str],
        keys: Sequence[str],
        axes: Mapping[str, str],
    ) -> Recording:
        """The recording with the names of its rows and columns, and with facts: the text, the output as `said`, and
        `axes`, which say what rows and columns are."""
        about = {**recording.about, "text": text, "said": said.replace("\t", ", "), **axes}
        return replace(recording, queries=tuple(queries), keys=tuple(keys), about=about)

    def draw(self, recording: Recording, example: str, output: Output, path: Path) -> Path:
        if path.suffix not in SUFFIXES:
            return show(recording).save(path)
        return self.draw_figure(recording, example, output, path)

    def draw_figure(self, recording: Recording, example: str, output: Output, path: Path) -> Path:
        """The attention behind one output as a figure."""
        return super().draw(recording, example, output, path)

    # Services

    @abstractmethod
    def about(self) -> dict[str, object]:
        """Facts about the model for GET /v1/model."""

    def option_maxima(self, limits: Limits) -> dict[str, int]:
        """The largest values of options whose bounds depend on the run, or on the limits of the service."""
        return {}

    def example(self) -> str:
        """A text that it can read."""
        return "a b c"


class ConversationPredictor(TextPredictor[Output]):
    """A predictor of conversations: turns with tabs between them, the user's last."""

    endpoint_class = "regard.serve.chat_endpoint:ChatEndpoint"
    text_schema = MappingProxyType({"format": "dialogue"})
    page_example = "I am looking for a cheap restaurant in the north."

    def example(self) -> str:
        return "a b"

    @abstractmethod
    def chat_answer(self, output: Output, recording: Recording) -> ChatAnswer:
        """The answer to a conversation, by its output and the attention behind it."""


class StreamingPredictor(ConversationPredictor[Output]):
    """A predictor whose reply can be given in pieces."""

    endpoint_class = "regard.serve.chat_endpoint:StreamedChatEndpoint"

    @abstractmethod
    def stream(self, text: str, options: Any) -> Iterator[str | Output]:
        """The pieces of the text of an output, and then the output that `predict` has for this text alone."""

    @abstractmethod
    def attend(self, output: Output) -> None:
        """The pass in which `predict` attends to what an output is made of, without a search for it."""
