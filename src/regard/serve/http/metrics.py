"""Metrics: what was asked and how long it took, as Prometheus reads it (text format 0.0.4)."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)


class _Histogram:
    def __init__(self, edges: Sequence[float]) -> None:
        self.edges, self.counts, self.total = edges, [0] * (len(edges) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.edges, value)] += 1
        self.total += value

    def lines(self, name: str) -> Iterator[str]:
        below = 0
        for edge, count in zip((*self.edges, "+Inf"), self.counts, strict=True):
            below += count
            yield f'{name}_bucket{{le="{edge}"}} {below}'
        yield f"{name}_sum {self.total:.6f}"
        yield f"{name}_count {below}"


class Metrics:
    """Counts of requests and of what is in them, which is `counted`: "sentences", "pictures". Never a text.

    Two threads write.
    """

    def __init__(self, counted: str = "sentences") -> None:
        self.counted = counted
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds = _Histogram(_SECONDS)
        self._batches = _Histogram(_COUNTS)
        self._busy = 0.0

    def request(self, path: str, status: int, seconds: float) -> None:
        with self._lock:
            self._requests[path, status] += 1
            self._seconds.add(seconds)

    def batch(self, count: int, seconds: float) -> None:
        """The model was called once, with so many sentences, or pictures."""
        with self._lock:
            self._batches.add(count)
            self._busy += seconds

    @property
    def requests(self) -> int:
        return sum(self._requests.values())

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """All of it, with numbers of this moment: name -> what it is, value."""
        with self._lock:
            return "\n".join([*self._counters(), *self._histograms(), *_gauges(gauges)]) + "\n"

    def _counters(self) -> Iterator[str]:
        yield from _head("regard_requests_total", "counter", "requests by path and status")
        for (path, status), count in sorted(self._requests.items()):
            yield f'regard_requests_total{{path="{path}",status="{status}"}} {count}'
        yield from _head("regard_model_seconds_total", "counter", "time that the model was busy")
        yield f"regard_model_seconds_total {self._busy:.6f}"

    def _histograms(self) -> Iterator[str]:
        yield from _head("regard_request_seconds", "histogram", "from the first line of a request to its answer")
        yield from self._seconds.lines("regard_request_seconds")
        name = f"regard_batch_{self.counted}"
        yield from _head(name, "histogram", f"{self.counted} that the model answered in one call")
        yield from self._batches.lines(name)


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _gauges(gauges: Mapping[str, tuple[str, float]]) -> Iterator[str]:
    for name, (about, value) in gauges.items():
        yield from _head(name, "gauge", about)
        yield f"{name} {value:g}"
