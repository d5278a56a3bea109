"""The native library: found, refused with a sentence, chosen by argument."""

import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import torch

from regard.kernels import native_library


def test_without_a_library_one_sentence_tells_why(tmp_path: Path) -> None:
    why = native_library.load(tmp_path)
    assert why == "no native kernels: the package was built without a C compiler; install one and reinstall regard"


def test_a_broken_library_is_named(tmp_path: Path) -> None:
    name = f"_native{EXTENSION_SUFFIXES[0]}"
    (tmp_path / name).write_bytes(b"not a library")
    why = native_library.load(tmp_path)
    assert isinstance(why, str)
    assert why.startswith(f"no native kernels: {name} does not load (")
    assert why.endswith("; reinstall regard")


@pytest.mark.skipif(native_library.library() is None, reason=str(native_library.why_not()))
def test_another_interface_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "ABI", 99)
    why = native_library.load(Path(native_library.__file__).parent)
    assert isinstance(why, str)
    assert "has interface 5, this regard needs 99; reinstall regard" in why


def test_the_library_or_the_reason() -> None:
    assert (native_library.library() is None) == (native_library.why_not() is not None)
    assert native_library.instruction_set() in ("none", "baseline", "avx2", "avx512")


def test_the_level_bounds_the_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "LEVEL", 0)
    assert native_library.instruction_set() in ("none", "baseline")


def test_a_choice_is_explained() -> None:
    x = torch.zeros(3)
    assert native_library.choose(False, x) is False
    assert native_library.choose(None, x.half()) is False
    assert native_library.choose(None, x) is (native_library.library() is not None)
    assert native_library.refusal(x.half()) == "the native kernels take float32 and float64, not torch.float16"
    assert native_library.refusal(x.to("meta")) == "the native kernels run on the cpu, not on meta"
    with pytest.raises(
        RuntimeError, match="native=True cannot be had: the native kernels take .* native=None takes what runs"
    ):
        native_library.choose(True, x.half())


def test_import_loads_nothing() -> None:
    program = (
        "import sys, torch, regard.kernels.additive, regard.kernels.sparsemax, regard.kernels.native_library as library\n"
        "assert library._loaded.cache_info().currsize == 0\n"
        "assert 'regard.kernels.additive.custom_ops' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_bottom_room_imports_nothing_of_regard() -> None:
    for path in Path(native_library.__file__).parent.glob("*.py"):
        for line in path.read_text().splitlines():
            words = line.split()
            if words[:1] in (["import"], ["from"]):
                assert not words[1].startswith(("regard", "..")), f"{path.name}: {line}"
