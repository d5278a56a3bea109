"""The command line in this process, as in tests/cli; the trainings of comparisons too."""

import pytest
from tests.cli.conftest import regard as regard
from tests.comparisons import train_in_process

from regard.experiments import comparison


@pytest.fixture(autouse=True)
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_process", train_in_process)
