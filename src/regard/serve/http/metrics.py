"""Metrics of the service in the text format of Prometheus (0.0.4): counts of requests and seconds, never a text."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters of one service; `unit` is the noun of the inputs, such as "sentences"."""

    def __init__(self, unit: str = "sentences") -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "regard_requests", "requests by path and status", ["path", "status"], registry=self.registry
        )
        self._busy = Counter("regard_model_seconds", "time that the model was busy", registry=self.registry)
        self._seconds = Histogram(
            "regard_request_seconds",
            "from the first line of a request to its answer",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._batches = Histogram(
            f"regard_batch_{unit}",
            f"{unit} that the model answered in one call",
            buckets=_COUNTS,
            registry=self.registry,
        )
        self._waiting = Gauge(f"regard_waiting_{unit}", f"{unit} that wait to be answered", registry=self.registry)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Counts one request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.observe(seconds)

    def busy(self, seconds: float) -> None:
        """Counts the time of a piece of a streamed answer."""
        self._busy.inc(seconds)

    def batch(self, count: int, seconds: float) -> None:
        """Counts one call of the model with `count` inputs."""
        self._batches.observe(count)
        self._busy.inc(seconds)

    def read_waiting(self, waiting: Callable[[], int]) -> None:
        """Takes the number of waiting inputs from this function whenever the metrics are read."""
        self._waiting.set_function(waiting)

    def text(self) -> bytes:
        return generate_latest(_WithoutCreated(self.registry))


class _WithoutCreated:
    """The metrics of a registry without their creation times, which the library can only omit for a whole process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self.registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
