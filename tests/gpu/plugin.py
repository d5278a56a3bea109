"""Plugin of the process that tests pretended GPUs: builds and loads the guard for devices before torch is imported.

It also has the option that writes the tables of reads and operations anew.
"""

import ctypes
import hashlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.gpu.__main__ import compiler

SOURCE = Path(__file__).with_name("cuda_guard.cpp")
BUILDS = Path(__file__).parents[2] / "build" / "cuda-guard"


def guard_library() -> Path:
    """The compiled guard for the installed torch, built if no run before has built it."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    torch = Path(spec.origin).parent
    key = hashlib.sha256(SOURCE.read_bytes() + (torch / "version.py").read_bytes()).hexdigest()[:16]
    path = BUILDS / f"{key}.so"
    if not path.exists():
        cxx = compiler()
        assert cxx is not None, "no C++ compiler"
        BUILDS.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        flags = ["-O0", "-std=c++20", "-shared", "-fPIC", f"-I{torch / 'include'}"]
        libraries = [f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu"]
        subprocess.run([cxx, *flags, str(SOURCE), "-o", str(part), *libraries], check=True)
        part.replace(path)
    for name in ("libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL(str(torch / "lib" / name), mode=ctypes.RTLD_GLOBAL)
    return path


def load_guard() -> None:
    """Registers the guard. torch looks for its hooks while it is imported, and does not look again."""
    assert "torch" not in sys.modules, "torch is imported already"
    assert ctypes.CDLL(str(guard_library())).register_cuda_guard(), "torch has CUDA: the guard is for builds without"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-tables", action="store_true", help="write the tables, instead of comparing with them")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "whole: a long test, for `make test-all` alone")


load_guard()


# torch is imported from here on, behind the guard
import torch  # noqa: E402
from tests.gpu.pretend_cuda import pretended_gpu  # noqa: E402
from tests.gpu.tables import Table, read_tables  # noqa: E402

# the parameters of tests that `-m` leaves out
_skipped: set[str] = set()


def pytest_deselected(items: list[pytest.Item]) -> None:
    _skipped.update(
        item.callspec.id for item in items if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    )


@pytest.fixture(scope="session", autouse=True)
def _gpu() -> Iterator[None]:
    with pretended_gpu():
        yield


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def tables(request: pytest.FixtureRequest) -> Iterator[dict[str, Table]]:
    """The tables; with --write-tables they are written anew."""
    are_written = request.config.getoption("--write-tables")
    tables = read_tables(are_written)
    yield tables
    skipped = None if request.config.option.keyword else _skipped
    for table in tables.values():
        if are_written:
            table.write(skipped)
        elif skipped is not None and not request.session.testsfailed:
            table.check_names(skipped)
