"""The one thing pyproject.toml cannot say: a native library that may fail to build, leaving a pure Python package."""

from glob import glob

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "regard.kernels._native",
            sources=["src/regard/kernels/csrc/native.c"],
            depends=glob("src/regard/kernels/csrc/*.h"),
            optional=True,
            # No -march: the file is built once and may run elsewhere, so it chooses instructions when it runs.
            # No -ffast-math: linking with it makes the whole process flush denormals, torch included.
            extra_compile_args=["-O3", "-g0", "-std=gnu11", "-pthread", "-fno-math-errno", "-fno-trapping-math"],
            extra_link_args=["-pthread", "-lm"],
        )
    ]
)
