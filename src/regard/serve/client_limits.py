"""ClientLimits: the inputs of one client that wait or are answered at once, and its share of the time of a model.

A client is the name of a token, or the address of a connection.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable

from regard.serve.errors import RequestError

# clients whose time is remembered, before those that have used up none are forgotten
_REMEMBERED = 1024


class ClientLimits:
    """Counts of the clients of one model; None does not limit.

    The `seconds` of a client are those per minute: they come back evenly, so that it may use up all of them at once.
    """

    def __init__(self, inputs: int | None, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._inputs, self._seconds, self._clock = inputs, seconds, clock
        self._open: Counter[str] = Counter()
        self._used: dict[str, tuple[float, float]] = {}  # seconds that a client has used up, and when
        self._lock = threading.Lock()

    def reserve(self, client: str, count: int, unit: str) -> None:
        """Counts the inputs of a request as open; RequestError if the client has used up its share."""
        if self._inputs is not None and count > self._inputs:
            # waiting does not help, so no time to retry
            raise RequestError(
                422,
                f"a request must hold at most the {self._inputs} {unit} that one client may have open, got {count}; "
                "ask for fewer at once",
                cause="client",
            )
        with self._lock:
            if self._inputs is not None and self._open[client] + count > self._inputs:
                raise RequestError(
                    429,
                    f"{self._open[client]} {unit} of this client wait already and {self._inputs} may; "
                    "wait for an answer",
                    retry=1,
                    cause="client",
                )
            if self._seconds is not None and (excess := self._level(client) - self._seconds) >= 0:
                retry = int(excess * 60 / self._seconds) + 1
                raise RequestError(
                    429,
                    f"this client has used up its {self._seconds:g} seconds of the model per minute; "
                    f"ask again in {retry} s",
                    retry=retry,
                    cause="client",
                )
            self._open[client] += count

    def release(self, client: str, count: int) -> None:
        """Counts the inputs of a request as answered."""
        with self._lock:
            self._open[client] -= count
            if not self._open[client]:
                del self._open[client]

    def spend(self, client: str, seconds: float) -> None:
        """Counts time of the model that was used for a client."""
        if self._seconds is None:
            return
        with self._lock:
            self._used[client] = self._level(client) + seconds, self._clock()
            if len(self._used) > _REMEMBERED:
                self._used = {name: used for name, used in self._used.items() if self._level(name)}

    def _level(self, client: str) -> float:
        """The seconds that a client has used up and that have not come back."""
        used, at = self._used.get(client, (0.0, 0.0))
        assert self._seconds is not None
        return max(0.0, used - (self._clock() - at) * self._seconds / 60)
