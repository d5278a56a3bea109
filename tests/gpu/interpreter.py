"""Plugin of the process that runs Triton kernels in Python: tells Triton so before it is imported."""

import os
import sys

import pytest

assert "triton" not in sys.modules, "triton is imported already"
os.environ["TRITON_INTERPRET"] = "1"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "whole: a long test, for `make test-all` alone")


@pytest.fixture(autouse=True)
def _seed() -> None:
    import torch

    torch.manual_seed(0)
