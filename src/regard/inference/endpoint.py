"""Served: what the service asks of a task, whatever it is about.

    asked = served.read({"text": "4. April"})       what a body asks for, or why it cannot be answered
    asked = served.unpack(asked, over)              beside all others, where that takes long
    served.answer([asked, another])                 one answer each, all found together

A task that has these is served by the same app: its path, its page, its limits, its batches.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pydantic import BaseModel

# of what was asked for, and of whether nobody waits for it any more, which is asked often: a thread must end itself
Unpack = Callable[[Any, Callable[[], bool]], Any]


class EndpointRequest(Protocol):
    """A request that was understood."""

    @property
    def count(self) -> int:
        """How many sentences, images or the like it has: what batches and waiting are counted in."""


@dataclass(frozen=True)
class PageSpec:
    """The page of a task: a script of regard.viz that draws answers, and one of regard.serve that asks for them."""

    title: str
    view: str
    form: str
    data: Mapping[str, object] = field(default_factory=dict)  # what both read


@dataclass(frozen=True)
class Schema:
    """The models of a request's body, which is checked against it, and of the answer; /openapi.json has both."""

    summary: str
    request: "type[BaseModel]"  # a subclass of regard.serve.http.body_models.RequestModel
    answer: "type[BaseModel]"


class Endpoint(Protocol):
    """A model and how to ask it."""

    @property
    def name(self) -> str:
        """Of its path: POST /v1/name."""

    @property
    def counted(self) -> str:
        """What `EndpointRequest.count` counts: "sentences", "pictures"."""

    @property
    def face(self) -> PageSpec: ...

    @property
    def schema(self) -> Schema: ...

    def about(self) -> Mapping[str, object]:
        """What the model is, and what it bears, as JSON."""

    def read(self, body: Any) -> Any:
        """The request in a body of the model `schema.request`; RequestError if it is beyond a limit. Quick, for it runs
        between all other requests."""

    @property
    def unpack(self) -> Unpack | None:
        """What must be done before the model is asked and takes long, as pictures are unpacked: None, or a function
        that makes another Asked of one, beside all other requests; Refused if that cannot be answered."""

    def answer(self, asked: Sequence[Any]) -> list[dict[str, object]]:
        """An answer to each, as JSON, with what is needed to draw it; the same as if each were asked alone. RequestError
        if one cannot be answered: then each is asked again, alone."""
