"""StreamedTextEndpoint: a TextEndpoint that can also give the text of an answer in pieces, as it is found.

POST /v1/respond {"text": "hello", "stream": true}
data: {"text": "good"}
data: {"text": " day"}
data: {"answers": [{…}]}
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from regard.inference.endpoint import PageSpec, Schema
from regard.inference.limits import Limits
from regard.recording.run import recorded
from regard.serve.errors import RequestError
from regard.serve.http.body_models import RequestModel, with_rules
from regard.serve.http.body_rules import only_if
from regard.serve.rounding import rounded
from regard.serve.text_endpoint import TextEndpoint, TextRequest, option_error


class StreamingPredictor(Protocol):
    """The further methods of a predictor whose text can be streamed."""

    def stream(self, text: str, options: Any) -> Iterator[Any]:
        """The pieces of the text of an output, strings, and then the output that `predict` has for this text alone."""

    def attend(self, output: Any) -> object:
        """The pass in which `predict` attends to what an output is made of, without a search for it."""


class StreamedTextEndpoint:
    """`endpoint`, whose options have a field `stream`, and whose predictor `streamed` is.

    The last event is the answer that the request has without `stream`; its output is computed once.
    """

    unpack = None

    def __init__(self, endpoint: TextEndpoint, streamed: StreamingPredictor) -> None:
        self.endpoint, self.streamed = endpoint, streamed

    @property
    def name(self) -> str:
        return self.endpoint.name

    @property
    def unit(self) -> str:
        return self.endpoint.unit

    @property
    def limits(self) -> Limits:
        return self.endpoint.limits

    @property
    def page(self) -> PageSpec:
        return self.endpoint.page

    @property
    def schema(self) -> Schema:
        schema = self.endpoint.schema
        assert issubclass(schema.request, RequestModel)
        request = with_rules(schema.request, *schema.request.rules, only_if("stream", texts={"maxItems": 1}))
        return Schema(schema.summary, request, schema.answer)

    def model_info(self) -> Mapping[str, object]:
        return self.endpoint.model_info()

    def read(self, body: Any) -> TextRequest:
        request = self.endpoint.read(body)
        if request.is_streamed and request.count > 1:
            raise RequestError(422, "stream is for one text; leave it out, or send several requests")
        if request.is_streamed:
            # the status of a stream is sent before its first piece
            try:
                self.endpoint.predictor.read(request.texts[0])
            except ValueError as error:
                raise option_error(error) from error
        return request

    def answer(self, requests: Sequence[TextRequest]) -> list[dict[str, object]]:
        return self.endpoint.answer(requests)

    def stream(self, request: TextRequest) -> Iterator[dict[str, object]]:
        """{"text": …} for each piece of the text, then the answer."""
        (text,) = request.texts
        try:
            for piece in self.streamed.stream(text, request.options):
                if isinstance(piece, str):
                    yield {"text": piece}
                else:
                    output = piece
            attention = self._attention(text, output) if request.attention else {}
        except (ValueError, MemoryError) as error:
            raise option_error(error) from error
        yield {"answers": [{**rounded(self.endpoint.predictor.json(output)), **attention}]}

    def _attention(self, text: str, output: Any) -> dict[str, Any]:
        predictor = self.endpoint.predictor
        with recorded(predictor.model) as recording:
            self.streamed.attend(output)
        return self.endpoint.attention(text, output, predictor.label(recording, text, output))
