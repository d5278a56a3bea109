"""Worker: one thread that owns the model and answers all that waits together."""

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

from regard.inference.endpoint import Endpoint, EndpointRequest
from regard.serve.errors import RequestError
from regard.serve.http.metrics import Metrics

_log = logging.getLogger("regard.serve")
# how long a call may wait for others, as a share of the time that the last one took
_PATIENCE = 0.25


@dataclass(eq=False)
class Job:
    """A request on its way; `answer` becomes JSON."""

    asked: EndpointRequest
    answer: "Future[bytes]" = field(default_factory=Future)


class Batcher:
    """Whoever asks while the model is busy is answered next, up to `batch` sentences or pictures at once.

    Who asks alone is answered at once. After a call in company the next one waits until as many are there again, at
    most a quarter of the time that the last call took: clients that were answered together ask again together, and the
    first of them would otherwise be answered alone, in the time that all of them need.

    Entered, it runs; left, it answers what still waits and ends.
    """

    def __init__(self, served: Endpoint, metrics: Metrics, *, batch: int, waiting: int) -> None:
        self.served, self.metrics, self.batch, self.most = served, metrics, batch, waiting
        self.waiting = 0  # sentences, pictures
        self._unpacking = 0  # of those that wait
        self._jobs: deque[Job] = deque()
        self._ready = threading.Condition()
        self._ending = False
        self._company, self._patience = 1, 0.0  # requests that may be expected, and for how many seconds
        self._thread = threading.Thread(target=self._run, name="regard-model", daemon=True)

    def __enter__(self) -> "Batcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._ready:
            self._ending = True
            self._ready.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._ending

    def ask(self, asked: EndpointRequest) -> Job:
        """Takes its place behind all that waits; Refused if too many do."""
        job = Job(asked)
        with self._ready:
            self._enter(asked.count)
            self._jobs.append(job)
            self._ready.notify()
        return job

    @contextmanager
    def unpacking(self, count: int) -> Iterator[None]:
        """So many wait, and are not yet to be answered; Refused if that is too many."""
        with self._ready:
            self._enter(count)
            self._unpacking += count
        try:
            yield
        finally:
            with self._ready:
                self.waiting -= count
                self._unpacking -= count

    def _enter(self, count: int) -> None:
        if not self.alive:
            raise RequestError(503, "the service is stopping; ask again when it is back", retry=5)
        if self.waiting + count > self.most:
            counted = self.served.counted
            raise RequestError(
                429, f"{self.waiting} {counted} wait already and {self.most} may; ask again in a moment", retry=1
            )
        self.waiting += count

    def forget(self, job: Job) -> None:
        """Nobody wants this answer any more: it is not begun, or thrown away."""
        with self._ready:
            if job in self._jobs:
                self._jobs.remove(job)
                self.waiting -= job.asked.count
        job.answer.cancel()

    def _run(self) -> None:
        while jobs := self._taken():
            self._answer(jobs)

    def _taken(self) -> list[Job]:
        """What is answered next: the oldest, and of those behind it as many as fit; none at the end."""
        with self._ready:
            taken: list[Job] = []
            while not taken:
                while not self._jobs:
                    if self._ending:
                        return []
                    self._ready.wait()
                self._gather()
                room = self.batch
                while self._jobs and (not taken or self._jobs[0].asked.count <= room):
                    job = self._jobs.popleft()
                    self.waiting -= job.asked.count
                    if job.answer.set_running_or_notify_cancel():
                        taken.append(job)
                        room -= job.asked.count
            return taken

    def _gather(self) -> None:
        until = time.perf_counter() + self._patience
        while len(self._jobs) < self._company and self.waiting - self._unpacking < self.batch and not self._ending:
            if not self._ready.wait(until - time.perf_counter()):
                return

    def _answer(self, jobs: Sequence[Job]) -> None:
        start = time.perf_counter()
        try:
            # written here too: a long answer must not hold up those who ask
            written = [
                json.dumps(one, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
                for one in self.served.answer([job.asked for job in jobs])
            ]
            assert len(written) == len(jobs)
        except Exception as error:
            if len(jobs) > 1:
                # one that fails takes no other with it
                for job in jobs:
                    self._answer([job])
                return
            if isinstance(error, RequestError):  # the model cannot answer it, and says why
                jobs[0].answer.set_exception(error)
                return
            _log.error("a request failed", exc_info=error)
            sentence = "the model failed on this request, which is a fault of the service; its log tells more"
            jobs[0].answer.set_exception(RequestError(500, sentence))
            return
        count, seconds = sum(job.asked.count for job in jobs), time.perf_counter() - start
        self._company, self._patience = max(len(jobs), self._company // 2), seconds * _PATIENCE
        self.metrics.batch(count, seconds)
        for job, answer in zip(jobs, written, strict=True):
            job.answer.set_result(answer)
