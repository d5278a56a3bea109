"""Pairs as numbers: in memory or in files the same, nothing half-written, and what is dropped is counted."""

import errno
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from regard.data.text import corpus as module
from regard.data.text.corpus import MAPPED, Corpus, DroppedPairs, TokenizedLines, among_all
from regard.data.text.pairs import Pairs, read_pairs
from regard.data.text.tokenizer import Tokenizer

SOURCE = ["a b c", "b", "c c c c c", "a a", "", "b a", " ", "c"]
TARGET = ["x y", "y y y", "x", "y x y x y x y", "x", "", "x", "\u00a0"]
KEPT = [0, 1, 2, 3]
SOURCES, TARGETS = Tokenizer.train("words", SOURCE, 100), Tokenizer.train("characters", TARGET, 100)


def of(folder: Path | None = None, max_length: int = 100, mapped: int = MAPPED) -> tuple[Corpus, DroppedPairs]:
    return Corpus.of(Pairs(SOURCE, TARGET), SOURCES, TARGETS, max_length, folder, mapped=mapped)


def lines(side: TokenizedLines) -> list[list[int]]:
    return [side[n].tolist() for n in range(len(side))]


def test_ids_are_those_of_the_tokens() -> None:
    corpus, dropped = of()
    assert len(corpus) == len(corpus.target) == 4
    assert lines(corpus.source) == [SOURCES.encode(SOURCE)[n] for n in KEPT]
    assert lines(corpus.target) == [TARGETS.encode(TARGET)[n] for n in KEPT]
    assert corpus.source.lengths.tolist() == [3, 1, 5, 2]
    assert corpus.source.ids.dtype == np.int32
    assert corpus.source.starts.dtype == np.int64
    assert (dropped.too_long, dropped.empty, dropped.total) == (0, 4, 8)
    assert corpus.source[-1].tolist() == corpus.source[3].tolist()
    with pytest.raises(IndexError):
        corpus.source[4]


@pytest.mark.parametrize(("max_length", "kept"), [(13, 4), (12, 3), (5, 3), (4, 1), (3, 1)])
def test_long_pairs_are_dropped_and_counted(max_length: int, kept: int) -> None:
    corpus, dropped = of(max_length=max_length)
    assert len(corpus) == kept
    assert dropped == DroppedPairs(4 - kept, 4, 8, max_length)
    assert max(corpus.source.lengths.max(), corpus.target.lengths.max()) <= max_length


def test_pairs_know_where_they_stood() -> None:
    corpus, _ = of(max_length=3)
    assert corpus.left_out.tolist() == [n for n in range(8) if n != 0]
    assert among_all(np.arange(1), corpus.left_out).tolist() == [0]
    chance = np.random.default_rng(0)
    for share in (0.0, 0.1, 0.5, 0.9):
        out = chance.random(101) < share
        kept = np.flatnonzero(~out)
        np.testing.assert_array_equal(among_all(np.arange(len(kept)), np.flatnonzero(out)), kept)


def test_what_was_dropped_is_a_sentence() -> None:
    assert str(DroppedPairs(0, 0, 29_000, 100)) == "kept all 29,000 pairs"
    assert str(DroppedPairs(1200, 3, 29_000, 100)) == (
        "dropped 1,203 of 29,000 pairs: 1,200 with a side of more than 100 tokens, 3 with an empty side"
    )


@pytest.mark.parametrize("mapped", [0, 1, 8, 11, 12, 100])
@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_files_hold_what_memory_would(tmp_path: Path, mapped: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", chunk)
    plain, _ = of()
    folder = tmp_path / "run" / "corpus"
    filed, _ = of(folder, mapped=mapped)
    for name in ("source", "target"):
        one, two = getattr(plain, name), getattr(filed, name)
        assert isinstance(two.ids, np.memmap) == isinstance(two.starts, np.memmap) == (len(one.ids) > mapped)
        assert (folder / f"{name}.ids").exists() == (len(one.ids) > mapped)
        np.testing.assert_array_equal(one.ids, two.ids)
        np.testing.assert_array_equal(one.starts, two.starts)
        assert two.ids.dtype == np.int32
        assert two.starts.dtype == np.int64
        assert not two.ids.flags.writeable
    if folder.exists():
        assert {path.suffix for path in folder.iterdir()} <= {".ids", ".starts"}


def test_text_from_files_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("\n".join(SOURCE) + "\n")
    (tmp_path / "b").write_text("\n".join(TARGET) + "\n")
    read = read_pairs([tmp_path / "a", tmp_path / "b"], held=0)
    filed, dropped = Corpus.of(read, SOURCES, TARGETS, 100, tmp_path, mapped=0)
    assert lines(filed.source) == lines(of()[0].source)
    assert dropped == of()[1]


def test_a_second_corpus_takes_the_place_of_the_first(tmp_path: Path) -> None:
    first, _ = of(tmp_path, mapped=0)
    before = lines(first.target)
    second, _ = of(tmp_path, mapped=0, max_length=3)
    assert len(second) == 1
    # who still reads the old one reads the old one
    assert lines(first.target) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "source.ids",
        "source.starts",
        "target.ids",
        "target.starts",
    ]


def test_what_breaks_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of(tmp_path, mapped=0)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    class Broken(Exception):
        pass

    def encode(lines: list[str]) -> list[list[int]]:
        if "c" in lines:
            raise Broken
        return TARGETS.encode(lines)

    monkeypatch.setattr(module, "_CHUNK", 3)
    broken = Tokenizer.from_json(SOURCES.to_json())
    monkeypatch.setattr(broken, "encode", encode)
    with pytest.raises(Broken):
        Corpus.of(Pairs(SOURCE, TARGET), broken, TARGETS, 100, tmp_path, mapped=0)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_disk_that_takes_no_more_is_told_and_left_clean(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
    try:
        with pytest.raises(OSError, match="the file would be larger than this system allows; raise the limit"):
            of(tmp_path, mapped=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", range(4))
@pytest.mark.parametrize("had", [False, True], ids=["an empty folder", "an older corpus"])
def test_a_disk_that_is_full_at_the_end_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: int, had: bool
) -> None:
    if had:
        of(tmp_path, mapped=0, max_length=3)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done: list[int] = []

    def fsync(descriptor: int) -> None:
        if len(done) == file:
            raise OSError(errno.ENOSPC, "No space left on device")
        done.append(descriptor)

    monkeypatch.setattr(module.os, "fsync", fsync)
    with pytest.raises(OSError, match="the disk is full; free some space and resume"):
        of(tmp_path, mapped=0)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_nothing_left_is_told() -> None:
    sentence = (
        "no pair is left to learn from: dropped 2 of 2 pairs: 1 with a side of more than 2 tokens, "
        "1 with an empty side; raise max_length=2 or look at the files"
    )
    with pytest.raises(ValueError, match=sentence):
        Corpus.of(Pairs(["a", "a"], ["x y", ""]), SOURCES, TARGETS, 2, None)
    with pytest.raises(ValueError, match="max_length must be 1 or more, got 0; try max_length=100"):
        of(max_length=0)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells own memory from mapped files")
def test_what_went_to_files_leaves_no_memory_behind(tmp_path: Path) -> None:
    script = """
        import sys
        from pathlib import Path
        from regard.data.text.corpus import Corpus
        from regard.data.text.pairs import Pairs

        class Long:
            def __init__(self):
                self.known = []

            def encode(self, lines):
                self.known.append(bytes(100_000))
                return [[300] * 31] * len(lines)

        def own():
            lines = Path("/proc/self/status").read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1000

        def read(count):
            lines = ["a"] * count
            return Corpus.of(Pairs(lines, lines), tokens, tokens, 100, Path(sys.argv[1]), mapped=6_000_000)

        tokens = Long()
        # once so much was freed, the C library keeps arrays of this size among what else lives
        bytearray(2_000_000)
        before = own()
        corpus, _ = read(200_000)
        print(own() - before)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], capture_output=True, text=True, check=True
    )
    # 5 MB of it are what the tokens know; of ids there were 48 MB, in memory until the last lines came
    assert float(ran.stdout) < 25
