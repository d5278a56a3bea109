"""Batcher: one thread that owns the model and answers waiting requests in batches."""

import json
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import cast

from regard.common.cancellation import Cancellation, cancelled_if
from regard.inference.endpoint import Endpoint, EndpointRequest, StreamingEndpoint
from regard.serve.client_limits import ClientLimits
from regard.serve.errors import STOPPING, RequestError
from regard.serve.http.metrics import ModelMetrics

_log = logging.getLogger("regard.serve")
# the longest wait of a batch for more requests, as a share of the time that the last batch took
_MAX_WAIT_SHARE = 0.25
# a call of the model that lasts this many times the time limit of an answer does not end
_STUCK = 10.0
FAILED = "the model failed, and the service ends; see its log"


@dataclass(eq=False)
class Job:
    """A submitted request; `answer` is the future of its JSON."""

    request: EndpointRequest
    client: str = ""
    answer: "Future[bytes]" = field(default_factory=Future)
    emit: Callable[[bytes], object] | None = None  # gets the pieces of an answer that is streamed; `answer` is its end
    is_cancelled: bool = False


class Batcher:
    """Answers the requests that arrived while the model was busy in one batch, of at most `batch` sentences or images.

    A single request is answered at once. After a batch of several requests the next batch waits until as many have
    arrived again, at most a quarter of the time that the last batch took: clients that were answered together ask again
    together, and the first of them would otherwise be answered alone, in the time that all of them need.

    Streamed answers take turns: after every batch each of them advances by one piece.

    A context manager: on exit it answers the requests that still wait, and ends.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        metrics: ModelMetrics,
        *,
        batch: int,
        waiting: int,
        seconds: float = math.inf,
        clients: ClientLimits | None = None,
    ) -> None:
        self.endpoint, self.metrics, self.batch, self.max_waiting = endpoint, metrics, batch, waiting
        self.seconds = seconds  # the time limit of an answer
        self.clients = clients or ClientLimits(None, None)
        self._batch_seconds = (0.0, 0.0)  # times of the last two batches
        self._busy_since = math.inf  # the start of the present call of the model
        self.waiting = 0  # sentences or images
        self._unpacking = 0  # sentences or images that are being decoded
        self._jobs: deque[Job] = deque()
        self._running: list[Job] = []  # jobs that the thread answers now
        self._streams: list[tuple[Job, Iterator[dict[str, object]]]] = []  # answers that the thread streams
        self._ready = threading.Condition()
        self._is_stopping = False
        self.has_failed = False  # whether the thread ended by an error
        self.on_failure: Callable[[], object] = lambda: None  # called by the thread when it ends by an error
        self._expected_requests, self._max_wait = 1, 0.0  # requests in the next batch; seconds to wait for them
        self._thread = threading.Thread(target=self._run, name="regard-model", daemon=True)

    def __enter__(self) -> "Batcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._ready:
            self._is_stopping = True
            self._ready.notify()
        self._thread.join()

    @property
    def is_stuck(self) -> bool:
        """Whether a call of the model lasts much longer than anybody waits for it."""
        return time.perf_counter() - self._busy_since > _STUCK * self.seconds

    @property
    def is_full(self) -> bool:
        return self.waiting >= self.max_waiting

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not self._is_stopping

    def submit(self, request: EndpointRequest, emit: Callable[[bytes], object] | None = None, client: str = "") -> Job:
        """Queues a request, to be streamed to `emit` if it is given; RequestError if too many wait."""
        job = Job(request, client, emit=emit)
        with self._ready:
            self._reserve(request.count, client)
            self._jobs.append(job)
            self._ready.notify()
        job.answer.add_done_callback(lambda _: self.clients.release(client, request.count))
        return job

    @contextmanager
    def unpacking(self, count: int, client: str = "") -> Iterator[None]:
        """Counts requests as waiting while they are decoded; RequestError if too many wait."""
        with self._ready:
            self._reserve(count, client)
            self._unpacking += count
        try:
            yield
        finally:
            with self._ready:
                self.waiting -= count
                self._unpacking -= count
            self.clients.release(client, count)

    def _reserve(self, count: int, client: str) -> None:
        if self.has_failed:
            raise RequestError(503, FAILED, retry=5, cause="failed")
        if not self.is_alive:
            raise RequestError(503, STOPPING, retry=5, cause="stopping")
        if self.waiting + count > self.max_waiting:
            unit = self.endpoint.unit
            raise RequestError(
                429, f"{self.waiting} {unit} wait already and {self.max_waiting} may; ask again in a moment", retry=1
            )
        # the fewest batches before this request, each as short as the shorter of the last two
        expected = self.waiting // self.batch * min(self._batch_seconds)
        if expected > self.seconds:
            raise RequestError(
                429,
                f"the work that waits takes about {expected:.0f} seconds, and an answer may take {self.seconds:g}; "
                "ask again later",
                retry=math.ceil(expected - self.seconds) + 1,
                cause="work",
            )
        self.clients.reserve(client, count, self.endpoint.unit)
        self.waiting += count

    def cancel(self, job: Job) -> None:
        """Removes a job from the queue, or drops its answer if it is already running: a batch of which every job is
        cancelled ends at its next step."""
        job.is_cancelled = True
        with self._ready:
            if job in self._jobs:
                self._jobs.remove(job)
                self.waiting -= job.request.count
        job.answer.cancel()

    def _run(self) -> None:
        try:
            self._answer_all()
        except BaseException as error:
            self.has_failed = True
            self.on_failure()
            _log.critical("the thread of a model ended", exc_info=error)
            with self._ready:
                jobs = [*self._running, *self._jobs, *(job for job, _ in self._streams)]
                self._jobs.clear()
            for job in jobs:
                with suppress(InvalidStateError):  # answered, or cancelled at this moment
                    job.answer.set_exception(RequestError(503, FAILED, retry=5, cause="failed"))

    def _answer_all(self) -> None:
        while (jobs := self._next_jobs()) or self._streams:
            self._running, self._busy_since = jobs, time.perf_counter()
            if whole := [job for job in jobs if job.emit is None]:
                self._answer(whole)
            endpoint = cast(StreamingEndpoint, self.endpoint)
            self._streams += [(job, endpoint.stream(job.request)) for job in jobs if job.emit is not None]
            self._streams = [(job, pieces) for job, pieces in self._streams if self._advance(job, pieces)]
            self._busy_since = math.inf

    def _advance(self, job: Job, pieces: Iterator[dict[str, object]]) -> bool:
        """Sends the next piece of a streamed answer; returns whether there may be another."""
        start = time.perf_counter()
        assert job.emit is not None
        try:
            # a piece may take many tokens, such as those of one character
            with cancelled_if(lambda: job.is_cancelled):
                piece = None if job.is_cancelled else next(pieces, None)
            if piece is not None:
                job.emit(_json(piece))
        except Cancellation:
            piece = None
        except BaseException as error:  # a panic of an extension in Rust is no Exception
            self._fail(job, error)
            return False
        self._spend([job], time.perf_counter() - start)
        if piece is None:
            job.answer.set_result(b"")
        return piece is not None

    def _next_jobs(self) -> list[Job]:
        """The next batch: the oldest job and as many of the following ones as fit; none at the end, or if none waits
        while answers are streamed."""
        with self._ready:
            jobs: list[Job] = []
            while not jobs:
                while not self._jobs:
                    if self._is_stopping or self._streams:
                        return []
                    self._ready.wait()
                self._wait_for_more()
                capacity = self.batch
                while self._jobs and (not jobs or self._jobs[0].request.count <= capacity):
                    job = self._jobs.popleft()
                    self.waiting -= job.request.count
                    if job.answer.set_running_or_notify_cancel():
                        jobs.append(job)
                        capacity -= job.request.count
            return jobs

    def _wait_for_more(self) -> None:
        deadline = time.perf_counter() + self._max_wait
        while (
            len(self._jobs) < self._expected_requests
            and self.waiting - self._unpacking < self.batch
            and not self._is_stopping
            and not self._streams
        ):
            if not self._ready.wait(deadline - time.perf_counter()):
                return

    def _answer(self, jobs: Sequence[Job]) -> None:
        start = time.perf_counter()
        try:
            # encoded in this thread too: a long answer must not block the event loop
            with cancelled_if(lambda: all(job.is_cancelled for job in jobs)):
                bodies = [_json(answer) for answer in self.endpoint.answer([job.request for job in jobs])]
            assert len(bodies) == len(jobs)
        except Cancellation:
            for job in jobs:
                job.answer.set_exception(RequestError(503, "the request was cancelled"))
            self._spend(jobs, time.perf_counter() - start)
            return
        except BaseException as error:  # a panic of an extension in Rust is no Exception
            if len(jobs) > 1:
                # a request that fails must not fail the others
                for job in jobs:
                    self._answer([job])
                return
            self._fail(jobs[0], error)
            return
        count, seconds = sum(job.request.count for job in jobs), time.perf_counter() - start
        self._expected_requests, self._max_wait = (
            max(len(jobs), self._expected_requests // 2),
            seconds * _MAX_WAIT_SHARE,
        )
        self._batch_seconds = self._batch_seconds[1], seconds
        self.metrics.batch(count)
        self._spend(jobs, seconds)
        for job, answer in zip(jobs, bodies, strict=True):
            job.answer.set_result(answer)

    def _spend(self, jobs: Sequence[Job], seconds: float) -> None:
        """Counts time of the model, by the shares of the clients in the inputs."""
        self.metrics.busy(seconds)
        count = sum(job.request.count for job in jobs)
        for job in jobs:
            self.clients.spend(job.client, seconds * job.request.count / count)

    def _fail(self, job: Job, error: BaseException) -> None:
        if isinstance(error, RequestError):  # the endpoint refused the request
            job.answer.set_exception(error)
            return
        _log.error("a request failed", exc_info=error)
        sentence = "the model failed on this request, which is a fault of the service; see its log"
        job.answer.set_exception(RequestError(500, sentence))


def _json(answer: Mapping[str, object]) -> bytes:
    return json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
