"""One thread answers all that waits together: in order, within its room, each by itself when one fails."""

import json
import logging
import threading
import time
from collections.abc import Iterator

import pytest
from tests.serve.conftest import Gated, Panic, Word

from regard.common.cancellation import check_cancelled
from regard.serve.batcher import Batcher
from regard.serve.errors import RequestError
from regard.serve.http.metrics import Metrics


@pytest.fixture
def metrics() -> Metrics:
    return Metrics({"": "sentences"})


@pytest.fixture
def worker(gated: Gated, metrics: Metrics) -> Iterator[Batcher]:
    gated.gate.clear()
    with Batcher(gated, metrics.of(""), batch=5, waiting=17) as made:
        yield made
        gated.gate.set()


def busy(worker: Batcher, gated: Gated) -> None:
    """The model is at work on a first request, and stays so."""
    worker.submit(Word("first"))
    assert gated.begun.wait(60)


def test_what_waits_is_answered_together(worker: Batcher, gated: Gated, metrics: Metrics) -> None:
    busy(worker, gated)
    jobs = [worker.submit(Word(word, count)) for word, count in [("a", 2), ("b", 3), ("c", 1), ("d", 7), ("e", 1)]]
    assert worker.waiting == 14
    gated.gate.set()
    assert [json.loads(job.answer.result(60)) for job in jobs] == [{"said": word} for word in "ABCDE"]
    # five sentences at most, but one request is never cut in two
    assert gated.calls == [["first"], ["a", "b"], ["c"], ["d"], ["e"]]
    assert worker.waiting == 0
    assert "regard_batch_sentences_count 5" in metrics.text().decode()


def test_too_many_are_told_to_come_back(worker: Batcher, gated: Gated) -> None:
    busy(worker, gated)
    worker.submit(Word("a", 16))
    with pytest.raises(RequestError, match="16 sentences wait already and 17 may; ask again in a moment") as caught:
        worker.submit(Word("b", 2))
    assert (caught.value.status, caught.value.retry) == (429, 1)
    worker.submit(Word("c", 1))


def test_what_is_unpacked_waits_and_fills_no_batch(worker: Batcher, gated: Gated) -> None:
    gated.gate.set()
    worker.submit(Word("first")).answer.result(60)
    with worker.unpacking(16):
        assert worker.waiting == 16
        with (
            pytest.raises(RequestError, match="16 sentences wait already and 17 may; ask again in a moment") as caught,
            worker.unpacking(2),
        ):
            raise AssertionError
        assert (caught.value.status, caught.value.retry) == (429, 1)
        # company is waited for, though more than a batch is being unpacked
        worker._expected_requests, worker._max_wait = 2, 6000.0
        jobs = [worker.submit(Word("a"))]
        time.sleep(0.1)
        with pytest.raises(RequestError, match="17 sentences wait already"):
            worker.submit(Word("b"))
    jobs.append(worker.submit(Word("c")))
    for job in jobs:
        job.answer.result(60)
    assert gated.calls == [["first"], ["a", "c"]]
    assert worker.waiting == 0


def test_what_is_forgotten_makes_room_and_is_not_answered(worker: Batcher, gated: Gated) -> None:
    busy(worker, gated)
    job = worker.submit(Word("a", 16))
    worker.cancel(job)
    assert worker.waiting == 0
    later = worker.submit(Word("b", 17))
    gated.gate.set()
    later.answer.result(60)
    worker.cancel(later)  # too late: nothing happens
    assert gated.calls == [["first"], ["b"]]


def test_a_batch_that_nobody_waits_for_ends_between_steps(worker: Batcher, gated: Gated) -> None:
    busy(worker, gated)
    endless = [worker.submit(Word("endless")), worker.submit(Word("b"))]
    later = worker.submit(Word("c", 5))
    gated.gate.set()
    while len(gated.calls) < 2:
        time.sleep(0.01)
    worker.cancel(endless[1])
    time.sleep(0.05)
    assert not later.answer.done()  # one of both is still waited for
    worker.cancel(endless[0])
    assert json.loads(later.answer.result(60)) == {"said": "C"}
    assert gated.calls == [["first"], ["endless", "b"], ["c"]]


def test_a_piece_that_nobody_waits_for_ends_between_steps(worker: Batcher, gated: Gated) -> None:
    """Many tokens may pass before a streamed answer has its next piece."""
    begun = threading.Event()

    def stream(request: Word) -> Iterator[dict[str, object]]:
        begun.set()
        while True:
            check_cancelled()
        yield {}

    gated.stream = stream  # type: ignore[attr-defined]
    gated.gate.set()
    job = worker.submit(Word("a"), emit=lambda piece: None)
    assert begun.wait(60)
    worker.cancel(job)
    assert json.loads(worker.submit(Word("b")).answer.result(60)) == {"said": "B"}
    assert job.answer.result(60) == b""


@pytest.mark.parametrize("word", ["poison", "panic"])
def test_one_that_fails_takes_no_other_with_it(
    word: str, worker: Batcher, gated: Gated, caplog: pytest.LogCaptureFixture
) -> None:
    busy(worker, gated)
    jobs = [worker.submit(Word(word)) for word in ("a", word, "b")]
    gated.gate.set()
    assert json.loads(jobs[0].answer.result(60)) == {"said": "A"}
    with pytest.raises(RequestError, match="the model failed on this request") as caught:
        jobs[1].answer.result(60)
    assert caught.value.status == 500
    assert json.loads(jobs[2].answer.result(60)) == {"said": "B"}
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None


def test_it_ends_when_all_is_answered(gated: Gated) -> None:
    gated.gate.clear()
    with Batcher(gated, Metrics({"": "sentences"}).of(""), batch=1, waiting=9) as worker:
        busy(worker, gated)
        jobs = [worker.submit(Word(word)) for word in "abc"]
        assert worker.is_alive
        gated.gate.set()
    assert all(job.answer.done() for job in jobs)
    assert not worker.is_alive
    with pytest.raises(RequestError, match="the service is stopping; try again when it is back") as caught:
        worker.submit(Word("d"))
    assert caught.value.status == 503


def test_company_is_waited_for_and_a_lone_one_is_not(worker: Batcher, gated: Gated) -> None:
    busy(worker, gated)
    together = [worker.submit(Word(word)) for word in "abc"]
    gated.gate.set()
    for job in together:
        job.answer.result(60)
    # the last call had three requests, but took no time: nobody waits for long
    worker.submit(Word("alone")).answer.result(60)
    worker._expected_requests, worker._max_wait = 3, 6000.0
    again = []
    for word in "def":
        again.append(worker.submit(Word(word)))
        time.sleep(0.05)
    for job in again:
        job.answer.result(60)
    assert gated.calls == [["first"], ["a", "b", "c"], ["alone"], ["d", "e", "f"]]
    # what is waited for need not be whole requests: a full batch is enough
    worker._expected_requests, worker._max_wait = 3, 6000.0
    worker.submit(Word("g", 5)).answer.result(60)


def test_the_end_waits_for_no_company(gated: Gated) -> None:
    with Batcher(gated, Metrics({"": "sentences"}).of(""), batch=5, waiting=9) as worker:
        worker._expected_requests, worker._max_wait = 3, 6000.0
        job = worker.submit(Word("a"))
    assert job.answer.done()


def test_a_thread_that_ends_says_so(
    worker: Batcher, gated: Gated, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(jobs: object) -> None:
        raise Panic("no way on")

    failures: list[bool] = []
    worker.on_failure = lambda: failures.append(worker.has_failed)
    busy(worker, gated)
    monkeypatch.setattr(worker, "_answer", fail)
    jobs = [worker.submit(Word("a", 5)), worker.submit(Word("b", 5))]
    gated.gate.set()
    for job in jobs:
        with pytest.raises(RequestError, match="the model failed, and the service ends; see its log") as caught:
            job.answer.result(60)
        assert caught.value.status == 503
    worker._thread.join(60)
    assert failures == [True]
    with pytest.raises(RequestError, match="the model failed, and the service ends; see its log"):
        worker.submit(Word("c"))
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]
