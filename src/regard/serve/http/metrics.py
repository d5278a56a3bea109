"""Metrics of the service in the text format of Prometheus (0.0.4): counts of requests and seconds, never a text."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector, generate_latest

from regard.serve.errors import RequestError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters of one service; `units` are the nouns of the inputs of its models, such as "sentences", by their names.

    Metrics of a model with a name have the label `model`.
    """

    def __init__(self, units: Mapping[str, str]) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "regard_requests", "requests by path and status", ["path", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "regard_request_seconds",
            "from the first line of a request to its answer",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._rejected = Counter(
            "regard_rejected",
            "requests that were answered by an error, by its cause",
            ["cause"],
            registry=self.registry,
        )
        self._reloads = Counter("regard_reloads", "reloads by their result", ["result"], registry=self.registry)
        self._versions = Gauge(
            "regard_model_info", "1 for the version of each model that is served", ["model", "version"],
            registry=self.registry,
        )  # fmt: skip
        # memory and time of the processor, on Linux
        ProcessCollector(registry=self.registry)
        labels = ["model"] if any(units) else []
        busy = Counter("regard_model_seconds", "time that the model was busy", labels, registry=self.registry)
        batches = {
            unit: Histogram(
                f"regard_batch_{unit}",
                f"{unit} that the model answered in one call",
                labels,
                buckets=_COUNTS,
                registry=self.registry,
            )
            for unit in dict.fromkeys(units.values())
        }
        waiting = {
            unit: Gauge(f"regard_waiting_{unit}", f"{unit} that wait to be answered", labels, registry=self.registry)
            for unit in batches
        }
        self._models = {
            name: ModelMetrics(busy.labels(name), batches[unit].labels(name), waiting[unit].labels(name))
            if labels
            else ModelMetrics(busy, batches[unit], waiting[unit])
            for name, unit in units.items()
        }

    def of(self, name: str) -> "ModelMetrics":
        return self._models[name]

    def request(self, path: str, status: int, seconds: float) -> None:
        """Counts one request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.observe(seconds)

    def reject(self, error: RequestError) -> None:
        """Counts one error by its cause."""
        self._rejected.labels(error.cause).inc()

    def reload(self, result: str) -> None:
        """Counts one reload: "exchanged", "unchanged" or "refused"."""
        self._reloads.labels(result).inc()

    def serve_versions(self, versions: Mapping[str, str]) -> None:
        """The version of every model from now on, by its name."""
        self._versions.clear()
        for name, version in versions.items():
            self._versions.labels(name, version).set(1)

    def text(self) -> bytes:
        return generate_latest(_WithoutCreated(self.registry))


class ModelMetrics:
    """Counters of one model."""

    def __init__(self, busy: Counter, batches: Histogram, waiting: Gauge) -> None:
        self._busy, self._batches, self._waiting = busy, batches, waiting

    def busy(self, seconds: float) -> None:
        """Counts time that the model was busy."""
        self._busy.inc(seconds)

    def batch(self, count: int) -> None:
        """Counts one call of the model with `count` inputs."""
        self._batches.observe(count)

    def read_waiting(self, waiting: Callable[[], int]) -> None:
        """Takes the number of waiting inputs from this function whenever the metrics are read."""
        self._waiting.set_function(waiting)


class _WithoutCreated:
    """The metrics of a registry without their creation times, which the library can only omit for a whole process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self.registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
