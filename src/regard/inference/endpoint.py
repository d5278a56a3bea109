"""Endpoint: the protocol between the HTTP service and a task.

    request = endpoint.read(body)                   a body that was checked against endpoint.schema.request
    request = endpoint.unpack(request)              in a thread beside other requests, where that takes long
    endpoint.answer([request, another])             one answer per request, computed together

`unpack` and `answer` call `regard.common.cancellation.check_cancelled` between their steps, where those take long: the
service ends work that nobody waits for any more.

A task that has an endpoint is served by the same app: its path, its page, its limits, its batches.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pydantic import BaseModel

Unpack = Callable[[Any], Any]


class EndpointRequest(Protocol):
    """A request that was understood.

    One whose `is_streamed` is true is answered by the pieces of `stream`, if the endpoint has that method.
    """

    @property
    def count(self) -> int:
        """The number of its inputs, sentences or images: the unit of batches and of the queue."""


@dataclass(frozen=True)
class PageSpec:
    """The page of a task: a script of regard.viz that draws answers, and one of regard.serve that sends requests."""

    title: str
    view: str
    form: str
    data: Mapping[str, object] = field(default_factory=dict)  # read by both scripts


@dataclass(frozen=True)
class Schema:
    """The models of a request's body, which is checked against it, and of its answer; /openapi.json has both."""

    summary: str
    request: "type[BaseModel]"  # a subclass of regard.serve.http.body_models.RequestModel
    answer: "type[BaseModel]"


class StreamingEndpoint(Protocol):
    """An endpoint that can give an answer in pieces."""

    def stream(self, request: Any) -> Iterator[dict[str, object]]:
        """The pieces of the answer, as JSON, each when it is computed; other requests are answered in between."""


class Endpoint(Protocol):
    """A model behind HTTP."""

    @property
    def name(self) -> str:
        """The last part of its path: POST /v1/NAME."""

    @property
    def unit(self) -> str:
        """The plural of what `EndpointRequest.count` counts: "sentences", "pictures"."""

    @property
    def page(self) -> PageSpec: ...

    @property
    def schema(self) -> Schema: ...

    def model_info(self) -> Mapping[str, object]:
        """The model and its limits, as JSON: GET /v1/model."""

    def read(self, body: Any) -> Any:
        """The request in a body of the model `schema.request`; RequestError if it exceeds a limit. It must be quick,
        since it runs between all other requests."""

    @property
    def unpack(self) -> Unpack | None:
        """A function that makes another request of one, such as by decoding images, where that takes long; None if
        there is nothing to do. RequestError if the request cannot be answered."""

    def answer(self, requests: Sequence[Any]) -> list[dict[str, object]]:
        """An answer per request, as JSON, with all that is needed to draw it; the same as if each were alone.
        RequestError if one cannot be answered: then each is answered again, alone."""
