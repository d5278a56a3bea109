"""Lines on disk are the lines in memory."""

import errno
import gc
import threading

import pytest
from hypothesis import given, strategies as st

from regard.data.text import lines as module
from regard.data.text.lines import Lines


def of(texts: list[str], held: int) -> Lines:
    lines = Lines(held)
    for text in texts:
        lines.add(text)
    return lines


@given(st.lists(st.text("aé☃\n", max_size=5), max_size=11), st.integers(0, 20), st.slices(11), st.integers(-12, 11))
def test_any_share_on_disk_reads_the_same(texts: list[str], held: int, part: slice, n: int) -> None:
    lines = of(texts, held)
    assert len(lines) == len(texts)
    assert list(lines) == texts
    assert lines[part] == texts[part]
    if -len(texts) <= n < len(texts):
        assert lines[n] == texts[n]
    else:
        with pytest.raises(IndexError):
            lines[n]
    assert list(reversed(lines)) == texts[::-1]


def test_more_than_a_chunk() -> None:
    texts = [f"line {n}" for n in range(module._CHUNK * 2 + 3)]
    lines = of(texts, 10)
    assert list(lines) == texts
    assert lines._memory == []


def test_reading_does_not_disturb_writing() -> None:
    lines = of(["a", "b"], 0)
    assert lines[0] == "a"
    lines.add("c")
    assert list(lines) == ["a", "b", "c"]


def test_many_may_read() -> None:
    texts = [str(n) * 50 for n in range(1000)]
    lines = of(texts, 0)
    found: list[bool] = []
    readers = [threading.Thread(target=lambda: found.append(list(lines) == texts)) for _ in range(5)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert found == [True] * 5


def test_the_file_goes_with_the_lines() -> None:
    lines = of(["a"], 0)
    file = lines._file
    del lines
    gc.collect()
    assert file.closed


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = of(["a"], 0)

    class Full:
        def write(self, text: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(lines, "_file", Full())
    with pytest.raises(OSError, match="text of more than 0 bytes goes to .*No space left on device.*; make") as caught:
        lines.add("b")
    assert caught.value.errno == errno.ENOSPC
