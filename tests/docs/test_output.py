"""What a page shows as printed is what its example prints."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOWN = re.compile(r"```python\n(?P<code>(?:(?!```).)*?)```\n\n```text\n(?P<printed>.*?)```", re.DOTALL)
# which kernels there are is the machine's matter
KERNELS = re.compile(r"(?<=runs: )(native kernels|the same algorithm in torch) \([^)]*\)")


@pytest.mark.parametrize("page", ["README.md", "docs/guides/kernels.md"])
def test_printed_is_shown(page: str) -> None:
    found = SHOWN.search((ROOT / page).read_text(encoding="utf-8"))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(found["code"], {})
    assert KERNELS.sub("kernels", printed.getvalue()) == KERNELS.sub("kernels", found["printed"])
