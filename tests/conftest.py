"""What holds for every test: nothing is fetched, nothing is drawn on a screen, and a second run does the same again."""

import gc
import os
import signal
import tempfile
from collections.abc import Iterator

# Read when these packages are first imported, so set before any test module is.
os.environ["KERAS_BACKEND"] = "torch"
os.environ["KERAS_HOME"] = os.path.join(tempfile.gettempdir(), "regard-keras")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "Agg"

import hypothesis
import pytest
import torch
from tests import product

from regard.cli import progress

SEVERAL_PROCESSES = ("test_distributed.py", "test_steps.py", "test_tensor_parallel.py")

# Derandomized: `make test` either passes or fails, whoever runs it. To search further: --hypothesis-profile=search.
hypothesis.settings.register_profile("stable", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.register_profile("search", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("stable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--whole", action="store_true", help="also long tests, and whole products instead of a part of each"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "whole: a long test, for --whole (`make test-all`) alone")
    product.whole = config.getoption("--whole")
    # torch.manual_seed stores a traceback for every kind of device that is absent, and tests seed thousands of times.
    for device in (torch.cuda, torch.xpu, torch.mtia):
        if not device.is_available():
            device.manual_seed_all = lambda seed: None
    # The workers already share the cores; threads on top of them only wait for one another.
    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)
    # A busy machine would print the notices of slow work; tests of these set a patience of their own.
    progress._PATIENCE = progress._INTERVAL = 3600.0


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without --whole, leaves out the tests marked `whole` and the part of every product that is not in its sample."""
    if not product.whole:
        kept = product.sampled(item for item in items if item.get_closest_marker("whole") is None)
        if left := [item for item in items if item not in kept]:
            config.hook.pytest_deselected(items=left)
            items[:] = [item for item in items if item in kept]
    # Tests that start several processes come first: at the end the other cores would wait for them.
    items.sort(key=lambda item: item.path.name not in SEVERAL_PROCESSES)


def pytest_collection_finish() -> None:
    # Modules and test items live as long as the run: the garbage collector need not read them again and again.
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    torch.manual_seed(0)


# Started in the background of a shell, tests would inherit that Ctrl-C is ignored, and so would what they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """A test that sets the number of threads leaves the others theirs."""
    before = torch.get_num_threads()
    yield
    if torch.get_num_threads() != before:
        torch.set_num_threads(before)


@pytest.fixture
def float64() -> Iterator[None]:
    """Tensors of the test have 64 bits where it names no type."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def hangup() -> Iterator[None]:
    """Tests that run where a terminal's end is ignored, as under nohup, feel it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
