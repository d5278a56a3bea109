"""The command line in this process, as in tests/cli; the trainings of comparisons too."""

import pytest
from tests.cli.conftest import regard as regard
from tests.comparisons import train_in_process

from regard.experiments import comparison


@pytest.fixture
def processes() -> None:
    """For a test of a comparison whose trainings are processes of their own."""


@pytest.fixture(autouse=True)
def _in_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "processes" not in request.fixturenames:
        monkeypatch.setattr(comparison, "_process", train_in_process)
