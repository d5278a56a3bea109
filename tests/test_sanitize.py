"""make sanitize: it builds all C of the package, and what the sanitizers find does not go unnoticed."""

import shutil
import subprocess
from pathlib import Path

import pytest
from tests import sanitize

CODE = """
#include <stdlib.h>
int overflow(int x) { return x + 2147483647; }
int past(int n) { char *p = malloc(n); p[0] = 0; int r = p[n]; free(p); return r; }
int fine(int x) { return x; }
"""


def test_all_c_is_built() -> None:
    sources = [sanitize.ROOT / source for extension in sanitize.extensions() for source in extension.sources]
    assert sources == sorted((sanitize.ROOT / "src").rglob("*.c"))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_findings_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(CODE)
    command = ["gcc", *sanitize.FLAGS, "-fPIC", "-shared", "a.c", "-o", "a.so"]
    if subprocess.run(command, cwd=tmp_path, check=False).returncode:
        pytest.skip("gcc has no sanitizers")
    reports = {}
    for name in ("overflow", "past", "fine"):
        code = f"import ctypes, sys; ctypes.CDLL(sys.argv[1]).{name}(7)"
        _, reports[name] = sanitize.run(code, str(tmp_path / "a.so"))
    assert "signed integer overflow: 7 + 2147483647" in reports["overflow"]
    assert "heap-buffer-overflow" in reports["past"]
    assert {name: sanitize.is_finding(report) for name, report in reports.items()} == {
        "overflow": True, "past": True, "fine": False,
    }  # fmt: skip
