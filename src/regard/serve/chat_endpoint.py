"""ChatEndpoint: a predictor of conversations behind HTTP, with a page to talk on.

POST /v1/respond {"text": "hello\\thow are you?\\tfine", "attention": true}
{"answers": [{…, "attention": […], "chat": {"reply": "good", "attended": […], "notes": []}}]}

POST /v1/respond {"text": "hello", "stream": true}
data: {"text": "good"}
data: {"text": " day"}
data: {"answers": [{…}]}

The service keeps no conversation: every request holds all of its turns, with tabs between them.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from regard.inference.endpoint import Schema
from regard.inference.text_predictor import ConversationPredictor, StreamingPredictor
from regard.recording.recording import Recording
from regard.recording.run import recorded
from regard.serve.errors import RequestError
from regard.serve.http.body_models import RequestModel, with_rules
from regard.serve.http.body_rules import only_if
from regard.serve.model_endpoint import InputsRequest
from regard.serve.rounding import rounded
from regard.serve.text_endpoint import TextEndpoint, option_error


class ChatEndpoint(TextEndpoint):
    """A predictor that tracks a dialogue between two others: its texts are turns with tabs between them."""

    form = "chat_form"
    speaks: ClassVar[bool] = False

    predictor: ConversationPredictor[Any]

    def page_data(self) -> dict[str, object]:
        chat = {"speaks": self.speaks, "streams": self.speaks, "characters": self.limits.characters}
        return {**super().page_data(), **chat}

    def attention(self, text: str, output: Any, recording: Recording) -> dict[str, Any]:
        """The maps of an output and the answer of the conversation, as JSON."""
        answer = self.predictor.chat_answer(output, recording)
        return {**super().attention(text, output, recording), "chat": rounded(answer.json())}


class StreamedChatEndpoint(ChatEndpoint):
    """A predictor that takes turns itself, and whose options have a field `stream`: the text of its reply comes in
    pieces, as it is found.

    The last event is the answer that the request has without `stream`; its output is computed once.
    """

    speaks = True

    predictor: StreamingPredictor[Any]

    @property
    def schema(self) -> Schema:
        schema = super().schema
        assert issubclass(schema.request, RequestModel)
        request = with_rules(schema.request, *schema.request.rules, only_if("stream", texts={"maxItems": 1}))
        return Schema(schema.summary, request, schema.answer)

    def read(self, body: Any) -> InputsRequest:
        request = super().read(body)
        if request.is_streamed and request.count > 1:
            raise RequestError(422, "stream is for one text; leave it out, or send several requests")
        if request.is_streamed:
            # the status of a stream is sent before its first piece
            try:
                self.predictor.read(request.inputs[0])
            except ValueError as error:
                raise option_error(error) from error
        return request

    def stream(self, request: InputsRequest) -> Iterator[dict[str, object]]:
        """{"text": …} for each piece of the text, then the answer."""
        (text,) = request.inputs
        try:
            for piece in self.predictor.stream(text, request.options):
                if isinstance(piece, str):
                    yield {"text": piece}
                else:
                    output = piece
            attention = self._streamed_attention(text, output) if request.attention else {}
        except (ValueError, MemoryError) as error:
            raise option_error(error) from error
        yield {"answers": [{**rounded(self.predictor.json(output)), **attention}]}

    def _streamed_attention(self, text: str, output: Any) -> dict[str, Any]:
        with recorded(self.predictor.model) as recording:
            self.predictor.attend(output)
        return self.attention(text, output, self.predictor.label(recording, text, output))
