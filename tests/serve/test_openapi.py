"""The OpenAPI document passes schemathesis: here a few requests per operation; make openapi sends many."""

from tests.serve.openapi import ENDPOINTS, check


def test_schemathesis() -> None:
    code, report = check(ENDPOINTS["classify-text"](), 7, "examples,fuzzing")
    assert code == 0, report
    assert "4 selected / 4 total" in report
