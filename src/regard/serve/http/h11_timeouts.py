"""Connection: uvicorn's HTTP/1.1 protocol with time limits for slow and idle clients."""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.inference.limits import Limits
from regard.serve.errors import error_body

# seconds that a refused client has to read its answer and close the connection
_LINGER = 2.0


class Connection(H11Protocol):
    """Closes connections that exceed a time limit, and answers malformed HTTP with a JSON error."""

    limits = Limits()
    # refused connections that are still open, of one server
    lingering: ClassVar["set[Connection]"] = set()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._arrival_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._send_error(503, "Service Unavailable", "too many connections; try again in a moment")
            return
        self._arrival_timer = self.loop.call_later(self.limits.arrival, self._time_out)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self in self.lingering:
            return
        super().data_received(data)
        # an idle connection between two requests is ended by the keep-alive timer; a partial request has a time limit
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel_arrival_timer()
        elif self._arrival_timer is None:
            self._arrival_timer = self.loop.call_later(self.limits.arrival, self._time_out)

    def on_response_complete(self) -> None:
        self._cancel_arrival_timer()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_arrival_timer()
        if self._write_timer is not None:
            self._write_timer.cancel()
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        self.lingering.discard(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.limits.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def send_400_response(self, msg: str) -> None:
        self._send_error(400, "Bad Request", "the service does not understand this HTTP request")

    def _time_out(self) -> None:
        if not self.transport.is_closing() and self not in self.lingering:
            self._send_error(
                408, "Request Timeout", f"the request did not arrive within {self.limits.arrival:g} seconds"
            )

    def _cancel_arrival_timer(self) -> None:
        if self._arrival_timer is not None:
            self._arrival_timer.cancel()
            self._arrival_timer = None

    def _send_error(self, status: int, phrase: str, sentence: str) -> None:
        """Answers bytes that are not a complete request, and closes the connection.

        Closing at once would reset the connection if the client has sent more, and it would lose the answer. So only
        this side is closed first; the rest of the request is dropped until the client closes too.
        """
        body = error_body(sentence)
        head = f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        if len(self.lingering) >= self.limits.connections:
            self.transport.close()
            return
        self.transport.write_eof()
        self.connections.discard(self)
        self.lingering.add(self)
        self._linger_timer = self.loop.call_later(_LINGER, self.transport.close)
