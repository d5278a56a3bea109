"""Connection: uvicorn's, for clients that send nothing, half a request, or never read."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.inference.limits import Limits
from regard.serve.errors import error_body


class Connection(H11Protocol):
    """Ends what hangs; says in JSON what was no HTTP."""

    limits = Limits()

    def __init__(self, *args: Any, **names: Any) -> None:
        super().__init__(*args, **names)
        self._hanging: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._say(503, "Service Unavailable", "too many are connected already; come back in a moment")
            return
        self._hanging = self.loop.call_later(self.limits.arrival, self._end)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        # Between two requests nothing need come (the keep-alive timer ends that); half a request must become whole.
        if self.cycle is not None and not self.cycle.response_complete:
            self._let_go()
        elif self._hanging is None:
            self._hanging = self.loop.call_later(self.limits.arrival, self._end)

    def on_response_complete(self) -> None:
        self._let_go()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.limits.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def send_400_response(self, msg: str) -> None:
        self._say(400, "Bad Request", "this is no HTTP request that the service understands")

    def _end(self) -> None:
        if not self.transport.is_closing():
            self._say(408, "Request Timeout", f"the request did not arrive within {self.limits.arrival:g} seconds")

    def _let_go(self) -> None:
        if self._hanging is not None:
            self._hanging.cancel()
            self._hanging = None

    def _say(self, status: int, phrase: str, sentence: str) -> None:
        """An answer to what never became a request, and the end of the connection."""
        body = error_body(sentence)
        head = f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()
