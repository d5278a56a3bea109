"""Counts in the text format of Prometheus: every line is one, buckets only grow, sums are sums."""

import re

from regard.serve.http.metrics import Metrics

SAMPLE = re.compile(
    r'^(?P<name>[a-z_]+)(?:\{(?P<labels>[a-z_]+="[^"\\\n]*"(?:,[a-z_]+="[^"\\\n]*")*)\})? (?P<value>\S+)$'
)


def samples(text: str) -> dict[tuple[str, str], float]:
    """Name and labels -> value; every sample must stand behind a HELP and a TYPE of its family."""
    found, families = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            families[name] = kind
        elif not line.startswith("# HELP "):
            match = SAMPLE.match(line)
            assert match, line
            family = re.sub(r"_(bucket|sum|count)$", "", match["name"])
            assert family in families or match["name"] in families
            found[match["name"], match["labels"] or ""] = float(match["value"])
    assert text.endswith("\n")
    return found


def test_all_is_counted() -> None:
    metrics = Metrics({"": "sentences"})
    for status, seconds in ((200, 0.001), (200, 0.3), (422, 0.0), (200, 99.0)):
        metrics.request("/v1/translate", status, seconds)
    metrics.of("").batch(1)
    metrics.of("").batch(64)
    metrics.of("").batch(1000)
    metrics.of("").busy(1.0)
    metrics.of("").read_waiting(lambda: 7)
    found = samples(metrics.text().decode())
    assert found["regard_requests_total", 'path="/v1/translate",status="200"'] == 3
    assert found["regard_requests_total", 'path="/v1/translate",status="422"'] == 1
    assert found["regard_request_seconds_count", ""] == 4
    assert found["regard_request_seconds_sum", ""] == 99.301
    assert found["regard_request_seconds_bucket", 'le="0.25"'] == 2
    assert found["regard_request_seconds_bucket", 'le="0.5"'] == 3
    assert found["regard_request_seconds_bucket", 'le="30.0"'] == 3
    assert found["regard_request_seconds_bucket", 'le="+Inf"'] == 4
    assert found["regard_batch_sentences_bucket", 'le="64.0"'] == 2
    assert found["regard_batch_sentences_sum", ""] == 1065
    assert found["regard_model_seconds_total", ""] == 1
    assert found["regard_waiting_sentences", ""] == 7
    assert not any("created" in name for name, _ in found)


def test_nothing_yet() -> None:
    found = samples(Metrics({"": "sentences"}).text().decode())
    assert found["regard_request_seconds_count", ""] == 0
