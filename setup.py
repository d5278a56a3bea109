"""What pyproject.toml cannot declare: the native library, the tag of its wheel, and absolute links on the page of PyPI.

The environment variable REGARD_NATIVE chooses how the library is built, with $CC or else cc, gcc or clang:

    (unset)    without a compiler the package is pure Python; a compiler that fails is an error
    required   without a compiler the build fails: for wheels that are published
    unchecked  the library is not loaded after it was built: for other platforms
    none       the package is pure Python
"""

import ctypes
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

NATIVE = os.environ.get("REGARD_NATIVE", "")
PROJECT = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
LIBRARY = Extension(
    "regard.kernels._native",
    sources=["src/regard/kernels/csrc/native.c"],
    depends=glob("src/regard/kernels/csrc/*.h"),
    # No -march: the file is built once and may run elsewhere, so it chooses instructions when it runs.
    # No -ffast-math: linking with it makes the whole process flush denormals, torch included.
    extra_compile_args=["-O3", "-g0", "-std=gnu11", "-pthread", "-fno-math-errno", "-fno-trapping-math"],
    extra_link_args=["-pthread", "-lm"],
)


def compiler() -> list[str]:
    """The command of the C compiler; empty if there is none."""
    if "CC" in os.environ:
        return shlex.split(os.environ["CC"])
    return [name for name in ("cc", "gcc", "clang") if shutil.which(name)][:1]


class BuildLibrary(build_ext):
    """Compiles a plain library that ctypes loads: it uses nothing of Python, so that one file serves all versions."""

    def get_ext_filename(self, fullname: str) -> str:
        system = {"win": ".dll", "mac": ".dylib", "dar": ".dylib"}.get(self.plat_name[:3], ".so")
        return fullname.replace(".", os.sep) + system

    def build_extension(self, ext: Extension) -> None:
        path = Path(self.get_ext_fullpath(ext.name))
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = shlex.split(" ".join(os.environ.get(name, "") for name in ("CFLAGS", "ARCHFLAGS", "LDFLAGS")))
        # other machines with Windows lack the libraries of this compiler, so they become part of the file
        kind = "-static" if path.suffix == ".dll" else "-fPIC"
        command = [*compiler(), *ext.extra_compile_args, kind, "-shared", *flags, *ext.sources]
        way_out = "REGARD_NATIVE=none builds regard without native kernels"
        try:
            subprocess.run([*command, "-o", str(path), *ext.extra_link_args], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise CompileError(f"the C compiler failed on the native kernels: {error}; {way_out}") from error
        if NATIVE != "unchecked":
            try:
                ctypes.CDLL(str(path.resolve())).regard_abi()
            except (OSError, AttributeError) as error:
                raise CompileError(f"the native library does not load: {error}; {way_out}") from error


class PlatformWheel(bdist_wheel):
    """One wheel per platform for all versions of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


def readme() -> str:
    """The README with links into the repository at the tag of this version, because PyPI has no other files."""

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link[1].startswith("!") else "blob"
        return f"{link[1]}{PROJECT['urls']['Repository']}/{kind}/v{PROJECT['version']}/"

    return re.sub(r"(!?\[[^]]*\]\()(?!https?:|#)", absolute, Path("README.md").read_text(encoding="utf-8"))


if NATIVE not in ("", "required", "unchecked", "none"):
    sys.exit(f"REGARD_NATIVE must be required, unchecked or none, or not be set, got {NATIVE!r}")
if NATIVE in ("required", "unchecked") and not compiler():
    sys.exit(f"REGARD_NATIVE={NATIVE} needs a C compiler: install one, or name it by CC")
setup(
    # pip prints nothing of a build that succeeds: without a compiler, `regard --version` and `explain` say so
    ext_modules=[LIBRARY] if NATIVE != "none" and compiler() else [],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": PlatformWheel},
    long_description=readme(),
    long_description_content_type="text/markdown",
)
