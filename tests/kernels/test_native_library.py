"""The native library: found, refused with a sentence, chosen by argument."""

import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import torch

from regard.kernels import native_library


def test_without_a_library_one_sentence_tells_why(tmp_path: Path) -> None:
    why = native_library.load_library(tmp_path)
    assert why == "no native kernels: the package was built without a C compiler; install one and reinstall regard"


def test_a_broken_library_is_named(tmp_path: Path) -> None:
    name = f"_native{EXTENSION_SUFFIXES[0]}"
    (tmp_path / name).write_bytes(b"not a library")
    why = native_library.load_library(tmp_path)
    assert isinstance(why, str)
    assert why.startswith(f"no native kernels: {name} does not load (")
    assert why.endswith("; reinstall regard")


@pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
def test_another_interface_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    version = native_library.ABI
    monkeypatch.setattr(native_library, "ABI", 99)
    why = native_library.load_library(Path(native_library.__file__).parent)
    assert isinstance(why, str)
    assert f"has interface {version}, this regard needs 99; reinstall regard" in why


def test_the_library_or_the_reason() -> None:
    assert (native_library.library() is None) == (native_library.unavailable_reason() is not None)
    assert native_library.instruction_set() in ("none", "baseline", "avx2", "avx512")


def test_the_level_bounds_the_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "LEVEL", 0)
    assert native_library.instruction_set() in ("none", "baseline")


def test_a_choice_is_explained() -> None:
    x = torch.zeros(3)
    assert native_library.resolve_native(False, x) is False
    assert native_library.resolve_native(None, x.half()) is False
    assert native_library.resolve_native(None, x) is (native_library.library() is not None)
    assert (
        native_library.unsupported_reason(x.half()) == "the native kernels take float32 and float64, not torch.float16"
    )
    assert native_library.unsupported_reason(x.to("meta")) == "the native kernels run on the cpu, not on meta"
    with pytest.raises(
        RuntimeError, match="native=True is not possible: the native kernels take .* native=None falls back to torch"
    ):
        native_library.resolve_native(True, x.half())


def test_import_loads_nothing() -> None:
    program = (
        "import sys, regard.kernels.additive, regard.kernels.sparsemax, regard.kernels.native_library as library\n"
        "assert library._library_or_reason.cache_info().currsize == 0\n"
        "assert 'regard.kernels.additive.custom_ops' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_kernels_import_nothing_else_of_regard() -> None:
    for path in Path(native_library.__file__).parent.rglob("*.py"):
        for line in path.read_text().splitlines():
            words = line.split()
            if words[:1] in (["import"], ["from"]):
                assert words[1].startswith("regard.kernels") or not words[1].startswith(("regard", "..")), (
                    f"{path}: {line}"
                )
