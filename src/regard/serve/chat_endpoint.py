"""chat_endpoint: a predictor of conversations behind HTTP, with a page to talk on.

POST /v1/respond {"text": "hello\\thow are you?\\tfine", "attention": true}
{"answers": [{…, "attention": […], "chat": {"reply": "good", "attended": […], "notes": []}}]}

The service keeps no conversation: every request holds all of its turns, with tabs between them.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from regard.inference.chat import ChatAnswer
from regard.inference.limits import Limits
from regard.inference.predictor import Predictor
from regard.recording.recording import Recording
from regard.serve.rounding import rounded
from regard.serve.text_endpoint import TextEndpoint


def chat_endpoint(
    predictor: Predictor[str, Any],
    limits: Limits,
    answer: Callable[[str, Any, Recording], ChatAnswer],
    *,
    name: str,
    title: str,
    speaks: bool,
    options: type | None = None,
    maxima: Mapping[str, int] = MappingProxyType({}),
    about: Mapping[str, object] = MappingProxyType({}),
    example: str = "a b",
    streams: bool = False,
) -> TextEndpoint:
    """The endpoint of a predictor whose texts are conversations: turns with tabs between them, the user's last.

    `answer` makes the answer to a conversation of its text, output and recording; `speaks` is false for a model that
    tracks the state of a dialogue between two others; `streams` says that the page may ask for pieces of a reply, which
    a StreamedTextEndpoint gives. The further arguments are those of TextEndpoint.
    """
    return TextEndpoint(
        predictor,
        limits,
        name=name,
        title=title,
        options=options,
        maxima=maxima,
        about=about,
        form="chat_form",
        page_data={"speaks": speaks, "streams": streams, "characters": limits.characters},
        beside_attention=lambda *made: {"chat": rounded(answer(*made).json())},
        example=example,
        text_schema={"format": "dialogue"},
    )
