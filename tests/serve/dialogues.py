"""A member of conversations behind HTTP: the words of a double, and the attention of a classifier of texts."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from tests.inference.conversations import Parrot, SlotFinder
from tests.serve.texts import PredictLabels, TextClassifier
from torch import Tensor

from regard.inference.chat import ChatAnswer
from regard.inference.limits import Limits
from regard.inference.predictor import Observe
from regard.inference.text_predictor import StreamingPredictor
from regard.recording.recording import Recording
from regard.serve.chat_endpoint import ChatEndpoint, StreamedChatEndpoint


class DialogueDouble(StreamingPredictor[ChatAnswer]):
    """Outputs are answers."""

    def __init__(self, speaks: bool) -> None:
        self.served_as = "respond" if speaks else "track"  # type: ignore[misc]
        self.page_title = f"{'Talk' if speaks else 'Track'} with {{run}}"  # type: ignore[misc]
        self.request_options = DialogueOptions if speaks else None  # type: ignore[misc]
        self.member = Parrot() if speaks else SlotFinder()
        self.classifier = TextClassifier()
        self.classifier.longest = 10_000
        self.model = self.classifier.model

    def about(self) -> dict[str, object]:
        return {}

    def chat_answer(self, output: ChatAnswer, recording: Recording) -> ChatAnswer:
        return output

    def predict(
        self, inputs: Sequence[str], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[ChatAnswer]:
        self.classifier.predict(inputs, PredictLabels(), observe)
        return [self.member.chat(text.split("\t")) for text in inputs]

    def stream(self, text: str, options: Any) -> Iterator[str | ChatAnswer]:
        heard: list[str] = []
        answer = self.member.chat(text.split("\t"), emit=heard.append)  # type: ignore[call-arg]
        yield from heard
        self.streamed = text
        yield answer

    def attend(self, output: ChatAnswer) -> None:
        self.classifier.predict([self.streamed], PredictLabels())

    def loss(self, inputs: Sequence[str], targets: Sequence[str]) -> Tensor:
        raise NotImplementedError

    def text(self, output: ChatAnswer) -> str:
        return output.text or ""

    def json(self, output: ChatAnswer) -> dict[str, Any]:
        return {"said": output.text}

    def label(self, recording: Recording, given: str, output: ChatAnswer) -> Recording:
        return self.classifier.label(recording, given, None)  # type: ignore[arg-type]


@dataclass(frozen=True)
class DialogueOptions:
    """Options of a request to one that speaks."""

    stream: bool = False


def dialogue_endpoint(speaks: bool, **limits: int) -> ChatEndpoint:
    """The replies of one that speaks can be streamed."""
    kind = StreamedChatEndpoint if speaks else ChatEndpoint
    return kind(DialogueDouble(speaks), Limits(**limits), run="tiny", step=4)
