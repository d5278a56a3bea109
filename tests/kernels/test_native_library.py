"""The native library: found, refused with a sentence, chosen by argument."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor

from regard.kernels import native_library


def test_without_a_library_one_sentence_tells_why(tmp_path: Path) -> None:
    why = native_library.load_library(tmp_path)
    assert why == "no native kernels: the package was built without a C compiler; install one and reinstall regard"


def test_a_broken_library_is_named(tmp_path: Path) -> None:
    name = native_library.NAME
    (tmp_path / name).write_bytes(b"not a library")
    why = native_library.load_library(tmp_path)
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


has_library = pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))


@has_library
@pytest.mark.parametrize(
    ("argument", "got"),
    [
        (lambda t: t.long(), "got torch.int64 of shape (6,) and strides (1,) on cpu; convert it before the call"),
        (lambda t: t.double(), "got torch.float64 of shape (6,)"),
        (lambda t: t.repeat(2)[::2], "got torch.float32 of shape (6,) and strides (2,) on cpu"),
        (lambda t: t.to("meta"), "on meta"),
        (lambda t: 17, "got 17; convert it"),
    ],
    ids=["integers", "wider", "strided", "device", "address"],
)
def test_a_kernel_refuses_tensors_that_it_would_misread(argument: Callable[[Tensor], object], got: str) -> None:
    x = torch.randn(6)
    with pytest.raises(
        TypeError, match="argument 1 of regard_gelu must be a contiguous tensor of torch.float32"
    ) as told:
        native_library.call_kernel("regard_gelu", x, 6, argument(x), None, torch.empty(6))
    assert got in str(told.value)


# what C calls the arguments that the table declares
C_TYPES = {"int": {"c_int"}, "i64": {"c_long", "c_longlong"}, "double": {"c_double"}}
POINTERS = {
    "i64": {"int64", "address"},
    "int": {"int32"},
    "unsigned char": {"byte"},
    "signed char": {"int8"},
    "float": {"real"},
    "uint8_t": {"byte"},
    "int8_t": {"int8"},
    "int32_t": {"int32"},
    "void": {"real", "int32", "int64", "byte", "address"},
}
OF_DTYPE = {torch.int64: "int64", torch.int32: "int32", torch.int8: "int8", torch.bool: "byte"}
DECLARED = re.compile(r"EXPORT int (regard_\w+)\(([^)]*)\) \{")


def kind_name(kind: object) -> str:
    """The kind of an argument in the table, as C_TYPES and POINTERS have it."""
    if isinstance(kind, native_library.Buffer):
        return OF_DTYPE.get(kind.dtypes[0][0], "real")
    return "address" if kind is native_library._ADDRESS else kind.__name__


def test_the_table_declares_every_function_as_it_is_written_in_c() -> None:
    source = (Path(native_library.__file__).parent / "csrc" / "native.c").read_text()
    written = dict(DECLARED.findall(source))
    assert written.keys() == native_library._SIGNATURES.keys()
    for name, kinds in native_library._SIGNATURES.items():
        arguments = [argument.strip() for argument in written[name].split(",") if argument != "void"]
        assert len(arguments) == len(kinds), name
        for argument, kind in zip(arguments, kinds, strict=True):
            c_type, star, _ = argument.removeprefix("const ").rpartition("*")
            fits = POINTERS[c_type.strip()] if star else C_TYPES[argument.split()[0]]
            assert kind_name(kind) in fits, f"{name}: {argument} is declared as {kind_name(kind)}"


def misfits(kind: native_library.Buffer) -> dict[str, object]:
    """Arguments that a kernel would misread in this place of a call in float32, and what its error says of them."""
    (dtype, *_), _ = kind.dtypes
    fitting = torch.zeros(4, 6, dtype=dtype)
    integer = torch.int32 if dtype == torch.int64 else torch.int64
    arguments: dict[str, object] = {
        f"got {integer} of": fitting.to(integer),
        "got torch.float64 of": fitting.double(),
        "on meta": fitting.to("meta"),
        "got 17": 17,
    }
    if kind.layout != "strided":
        arguments["strides (6, 2) on cpu"] = fitting[:, ::2]
    if kind.layout == "contiguous":
        arguments["strides (1, 6) on cpu"] = fitting.T
    return arguments


@has_library
@for_each("name", native_library._BUFFERS)
def test_every_kernel_refuses_what_it_would_misread(name: str) -> None:
    kinds = native_library._SIGNATURES[name][len(native_library._COMMON) :]
    for place, kind in native_library._BUFFERS[name]:
        for got, argument in misfits(kind).items():
            arguments = [None if isinstance(other, native_library.Buffer) else 0 for other in kinds]
            arguments[place] = argument
            with pytest.raises(TypeError, match=f"argument {place} of {name} must be {re.escape(str(kind))}") as told:
                native_library.call_kernel(name, torch.zeros(1), *arguments)
            assert got in str(told.value)


@has_library
def test_indices_are_as_wide_as_the_floats() -> None:
    x, mean, top = torch.randn(2, 5), torch.empty(2), torch.empty(2)
    with pytest.raises(
        TypeError, match="argument 5 of regard_pool must be .* of torch.int32 or torch.int64 .* got torch.int64"
    ):
        native_library.call_kernel("regard_pool", x, 2, 5, x, mean, top, torch.empty(2, dtype=torch.int64), None)


@has_library
def test_rows_may_have_any_stride_but_the_last() -> None:
    h = torch.randn(3, 8)[:, ::2]
    with pytest.raises(TypeError, match="argument 2 of regard_cell must be a tensor whose last axis has stride 1"):
        native_library.call_kernel("regard_cell", h, 3, 4, h, 8, *[None] * 3, 0, *[None] * 5, 0)
