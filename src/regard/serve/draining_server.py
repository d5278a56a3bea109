"""DrainingServer: uvicorn's server, which answers the open requests before it stops, reloads, and talks to systemd."""

import asyncio
import math
import socket
import time

import uvicorn

from regard.serve import systemd
from regard.serve.app import Health
from regard.serve.http.security_middleware import SecurityMiddleware
from regard.serve.reloading import Reloader
from regard.serve.revision import ModelExchange


class DrainingServer(uvicorn.Server):
    """The server of a service; `seconds` is the longest time that its open requests may still take."""

    def __init__(self, config: uvicorn.Config, service: SecurityMiddleware, reloader: Reloader | None, seconds: int):
        super().__init__(config)
        self.service, self.seconds = service, seconds
        self._reloader = reloader
        self._health = Health(self.exchange, lambda: service.is_stopping)
        if (watchdog := systemd.watchdog_seconds()) is not None:
            config.callback_notify, config.timeout_notify = self._show_life, math.floor(watchdog / 3)

    @property
    def exchange(self) -> ModelExchange:
        return self.service.app

    def request_reload(self) -> None:
        """Asks for a reload; a handler of a signal may call it at any moment."""
        if self._reloader is not None:
            self._reloader.request()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._reloader is not None:
            self._reloader.start(asyncio.get_running_loop())
        systemd.notify("READY=1")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuses new requests until the open ones are answered, so that /health says 503 meanwhile; then stops."""
        self.service.is_stopping = True
        systemd.notify("STOPPING=1")
        if self._reloader is not None:
            self._reloader.stop()
        pending, end = list(self.server_state.tasks), time.monotonic() + self.seconds
        while not self.force_exit and time.monotonic() < end and not all(task.done() for task in pending):
            await asyncio.sleep(0.05)
            await self._show_life()
        self.config.timeout_graceful_shutdown = math.ceil(max(end - time.monotonic(), 1))
        await super().shutdown(sockets)
        if self._reloader is not None:
            self._reloader.join()

    async def _show_life(self) -> None:
        """A sign of life for the watchdog of systemd, unless a model hangs."""
        if systemd.watchdog_seconds() is not None and self._health.liveness_error() is None:
            systemd.notify("WATCHDOG=1")
