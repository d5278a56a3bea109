"""Connection: uvicorn's HTTP/1.1 protocol with time limits for slow and idle clients."""

import asyncio
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.inference.limits import Limits
from regard.serve.errors import BUSY, RequestError
from regard.serve.http.reserved_connections import reserve, reserved_count
from regard.serve.http.security_middleware import HEADERS

# seconds that a refused client has to read its answer and close the connection
_LINGER = 2.0
# seconds for a request to arrive on a connection that is kept for /health
_RESERVED_ARRIVAL = 2.0
# sentences about faults that h11 has a status for
_FAULTS = {
    431: "the head of the request is too long; send fewer or shorter headers",
    501: "the service does not understand this Transfer-Encoding; send the body as it is, or chunked",
}


class Connection(H11Protocol):
    """Closes connections that exceed a time limit, and answers malformed HTTP with a JSON error."""

    limits = Limits()
    # refused connections that are still open, of one server
    lingering: ClassVar["set[Connection]"] = set()
    # connections that are kept for /health, the oldest first, of one server
    reserved: ClassVar["dict[Connection, None]"] = {}
    # counts an error that no app sees
    reject: ClassVar[Callable[[RequestError], object]] = staticmethod(lambda error: None)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.timers: dict[str, asyncio.TimerHandle] = {}  # by what they limit: "arrival", "writing", "lingering"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        most, seconds = self.limits.connections, self.limits.arrival
        if len(self.connections) > most:
            # a client that has not sent its request gives way: that of a health check comes at once
            silent = next((each for each in self.reserved if not each.is_answering), self)
            silent._send_error(RequestError(503, BUSY, retry=1, cause="connections"))
            if silent is self:
                return
        if self._is_beyond_share():
            self._send_error(RequestError(503, "too many connections of this address", retry=1, cause="client"))
            return
        if len(self.connections) > most - reserved_count(most):
            self.reserved[self] = None
            self.app_state, seconds = reserve(self.app_state), min(seconds, _RESERVED_ARRIVAL)
        self.timers["arrival"] = self.loop.call_later(seconds, self._time_out, seconds)

    def _is_beyond_share(self) -> bool:
        """Whether the address of this connection has more of them than it may."""
        share = self.limits.client_connections
        if share is None or not self.client:
            return False
        addresses = [each.client[0] for each in self.connections if each.client]  # type: ignore[union-attr]
        return addresses.count(self.client[0]) > share

    @property
    def is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self in self.lingering:
            return
        super().data_received(data)
        # an idle connection between two requests is ended by the keep-alive timer; a partial request has a time limit
        if self.is_answering:
            self._cancel("arrival")
        elif "arrival" not in self.timers:
            seconds = self.limits.arrival
            self.timers["arrival"] = self.loop.call_later(seconds, self._time_out, seconds)

    def on_response_complete(self) -> None:
        self._cancel("arrival")
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel(*self.timers)
        self.lingering.discard(self)
        self.reserved.pop(self, None)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.timers["writing"] = self.loop.call_later(self.limits.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel("writing")

    def send_400_response(self, msg: str) -> None:
        fault = sys.exception()
        status = fault.error_status_hint if isinstance(fault, h11.RemoteProtocolError) else 400
        if status not in _FAULTS:
            self._send_error(RequestError(400, "the service does not understand this HTTP request"))
        else:
            self._send_error(RequestError(status, _FAULTS[status]))

    def _time_out(self, seconds: float) -> None:
        if not self.transport.is_closing() and self not in self.lingering:
            self._send_error(RequestError(408, f"the request did not arrive within {seconds:g} seconds"))

    def _cancel(self, *names: str) -> None:
        for name in names:
            if (timer := self.timers.pop(name, None)) is not None:
                timer.cancel()

    def _send_error(self, error: RequestError) -> None:
        """Answers bytes that are not a complete request, and closes the connection.

        Closing at once would reset the connection if the client has sent more, and it would lose the answer. So only
        this side is closed first; the rest of the request is dropped until the client closes too.
        """
        type(self).reject(error)
        if self.is_answering:
            # the body of a request is malformed, and the app may have begun to answer
            if self.cycle.response_started:
                self.transport.close()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = error.body()
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
            **HEADERS,
            **error.headers,
        }
        lines = [
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        # at once: many connections may come before this one is lost
        self.connections.discard(self)
        self.reserved.pop(self, None)
        if len(self.lingering) >= self.limits.connections:
            self.transport.close()
            return
        try:
            self.transport.write_eof()
        except OSError:  # the client has left
            self.transport.close()
            return
        self.lingering.add(self)
        self.timers["lingering"] = self.loop.call_later(_LINGER, self.transport.close)
