"""RequestContext: one HTTP request with the status of its answer; drops the rest of a body that was refused."""

import asyncio
import time
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Receive, Scope, Send

from regard.serve.errors import RequestError

# bytes of a refused body that are read and dropped: a client that still sends could not read the error
_MAX_DRAINED_BYTES = 64_000_000


class RequestContext:
    """Receives and sends for one request; `status` is that of its answer, 499 if the client left before.

    `headers` are added to every answer.
    """

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, *, deadline: float, headers: Mapping[str, str]
    ) -> None:
        self._receive, self._send, self._deadline, self._headers = receive, send, deadline, headers
        received = Headers(scope=scope)
        self._body_complete = "content-length" not in received and "transfer-encoding" not in received
        self._expects_continue = "expect" in received
        self.status = 499
        self.has_started = False  # whether the start of an answer was sent

    async def receive(self) -> Message:
        message = await self._receive()
        self._body_complete = self._body_complete or not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.has_started = message["status"], True
            headers = MutableHeaders(scope=message)
            for name, value in self._headers.items():
                headers.setdefault(name, value)
            if not self._body_complete:
                headers["connection"] = "close"
                await self._drain()
        await self._send(message)

    async def send_error(self, error: RequestError) -> None:
        body = error.body()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **error.headers}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": error.status, "headers": pairs})
        await self.send({"type": "http.response.body", "body": body})

    async def _drain(self) -> None:
        # a client that waits for "100 Continue" has not sent its body
        seconds = self._deadline - time.perf_counter()
        if self._expects_continue or seconds <= 0:
            return
        drained = 0
        try:
            async with asyncio.timeout(seconds):
                while not self._body_complete and drained < _MAX_DRAINED_BYTES:
                    drained += len((await self.receive()).get("body", b""))
        except TimeoutError:
            return
