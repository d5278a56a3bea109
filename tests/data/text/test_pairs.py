"""Pairs from files: what a line is, and sentences that name the file and the line of what is wrong."""

import bz2
import gzip
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard.data import gzip_bound
from regard.data.audio.transcripts import read_transcripts
from regard.data.audio.wav import Sound, wav_bytes
from regard.data.dialogues import read_dialogues
from regard.data.images.captions import read_captions
from regard.data.text.labelled import read_labelled
from regard.data.text.pairs import Pairs, read_lines, read_pairs
from regard.data.text.sentence_pairs import read_labelled_pairs

ENGLISH = ["one", "", "two\u2028and \x0b\x0c\x1c\x85a half", " three\u00a0", "four"]
GERMAN = ["eins", "null", "zwei", "drei", "vier\rfünf"]


def put(path: Path, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("held", [0, 9, 1000])
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_files_of_every_make_give_the_same_pairs(
    tmp_path: Path, held: int, suffix: str, end: str, last: bool, mark: str
) -> None:
    def text(lines: list[str]) -> str:
        return mark + end.join(lines) + (end if last else "")

    one, two = put(tmp_path / f"a.en{suffix}", text(ENGLISH)), put(tmp_path / "a.de", text(GERMAN))
    tabbed = put(tmp_path / f"a.tsv{suffix}", text([f"{a}\t{b}" for a, b in zip(ENGLISH, GERMAN, strict=True)]))
    for pairs in (read_pairs([one, two], held=held), read_pairs([tabbed], held=held)):
        assert len(pairs) == 5
        assert list(pairs.source) == ENGLISH
        assert list(pairs.target) == GERMAN
        assert list(pairs.source[1:4]) == ENGLISH[1:4]


def test_a_mark_inside_a_file_is_text(tmp_path: Path) -> None:
    assert list(read_lines(put(tmp_path / "a", "a\n\ufeffb"))) == ["a", "\ufeffb"]


def test_lines_are_read_as_they_are_asked_for(tmp_path: Path) -> None:
    lines = read_lines(put(tmp_path / "a", b"a\nb\n\xff"))
    assert [next(lines), next(lines)] == ["a", "b"]
    with pytest.raises(ValueError, match="a:3: byte 0xff"):
        next(lines)


def told(paths: list[Path], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_pairs(paths)


def test_bad_bytes_are_found(tmp_path: Path) -> None:
    good = put(tmp_path / "good", "a\nb\nc\n")
    bad = put(tmp_path / "bad.gz", "a\nGrü".encode() + "ße\nc\n".encode("latin1"))
    told([good, bad], r"bad.gz:2: byte 0xdf at place 5 is not UTF-8; convert it, as in: iconv -f latin1 -t utf8")
    told([bad, good], "bad.gz:2: byte 0xdf")
    wide = put(tmp_path / "wide.tsv", "a\tb\n".encode("utf-16"))
    told(
        [wide], "wide.tsv:1: byte 0xff at place 1 is not UTF-8; it is UTF-16; convert it, as in: iconv -f utf16 -t utf8"
    )
    bare = put(tmp_path / "bare.tsv", "a\tb\n".encode("utf-16-le"))
    told([bare], "bare.tsv:1: a zero byte, at place 2, is that of UTF-16 or of no text; convert text, as in: iconv -f")
    mixed = put(tmp_path / "mixed.tsv", b"a\tb\n\xff\0\n")
    told([mixed], "mixed.tsv:2: byte 0xff at place 1 is not UTF-8; its zero bytes are those of UTF-16 or of no text")
    random = put(tmp_path / "random", bytes(range(240, 10, -1)) + b"\n")
    told(
        [random, random],
        "random:1: byte 0xf0 at place 1 is not UTF-8; its control characters are those of no text; name",
    )
    for start, kind in (
        (b"\x89PNG\r\n\x1a\n", "a PNG image"),
        (b"\x1f\x8b\x08", "packed by gzip and has no suffix"),
        (b"GIF89a\x01", "a GIF image"),
        (bz2.compress(b"a\tb\n"), "packed by bzip2"),
    ):
        picture = put(tmp_path / "picture.tsv", start)
        told([picture], f"picture.tsv is {kind}.*, not text; name a text file in UTF-8")
        with pytest.raises(ValueError, match=f"is {kind}.*, not text"):
            list(read_lines(picture, on_latin1=lambda number: None))
    # letters that begin names are text
    for text in ("BZhang", "GIF8"):
        assert read_pairs([put(tmp_path / "names.tsv", f"{text}\tb\n")]).source[0] == text


def test_files_of_unequal_length(tmp_path: Path) -> None:
    two, three = put(tmp_path / "two", "a\nb\n"), put(tmp_path / "three", "a\nb\nc")
    told([two, three], "two ends at line 2, .*three has 3 lines; line n of one must belong to line n of the other")
    told([three, two], "two ends at line 2, .*three has 3 lines")


def test_tabs(tmp_path: Path) -> None:
    told([put(tmp_path / "a", "a\tb\nc\n")], "a:2: a line must be source, tab, target, got 0 tabs; or pass two files")
    told([put(tmp_path / "b", "a\tb\tc\n")], "b:1: a line must be .* got 2 tabs; keep two columns with: cut -f1,2")
    # in a file of one language a tab is text
    assert read_pairs([put(tmp_path / "c", "a\tb"), put(tmp_path / "d", "c")]).source[0] == "a\tb"


def test_files_that_are_none(tmp_path: Path) -> None:
    good, empty = put(tmp_path / "good", "a\n"), put(tmp_path / "empty.gz", "")
    told([good, empty], "empty.gz is empty; it must hold one sentence per line")
    told([empty], "empty.gz is empty; it must hold source, tab, target, one pair per line")
    told([tmp_path / "none", good], "there is no file .*none; name one that is there")
    told([good, tmp_path], "is a directory; name the file in it")
    (tmp_path / "plain.gz").write_text("a\n")
    told([good, tmp_path / "plain.gz"], r"plain.gz:1: cannot be unpacked \(Not a gzipped file .*; pack it again")
    whole = gzip.compress(b"".join(b"line %d\n" % n for n in range(9000)))
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    told([tmp_path / "cut.gz"], "cut.gz:1: a line must be")
    with pytest.raises(ValueError, match=r"cut.gz:\d+: cannot be unpacked .*; pack it again with gzip"):
        list(read_lines(tmp_path / "cut.gz"))
    (tmp_path / "torn.gz").write_bytes(whole[:20] + bytes(200) + whole[220:])
    with pytest.raises(ValueError, match=r"torn.gz:\d+: cannot be unpacked"):
        list(read_lines(tmp_path / "torn.gz"))


def test_the_number_of_files(tmp_path: Path) -> None:
    told([], "paths must be one file or two, got 0; join the parts of a corpus with: cat")
    told([tmp_path] * 3, "paths must be one file or two, got 3")
    for path in (tmp_path, str(tmp_path)):
        with pytest.raises(TypeError, match=r"paths must be a list of one or two files, got .*; write \[path\]"):
            read_pairs(path)


def test_pairs_are_pairs() -> None:
    with pytest.raises(ValueError, match="source and target must have a line for each other, got 2 and 1 lines"):
        Pairs(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="references must be one sequence per line for 1 lines, got 2; give every"):
        Pairs(["a"], ["b"], references=[["b"], ["c"]])
    assert Pairs(["a"], ["b"]).answers == [("b",)]
    assert Pairs(["a"], ["b"], references=[["b", "c"]]).answers == [["b", "c"]]


def test_a_line_of_any_length_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"first\n" + b"x" * 40_000_000, 1))
    (tmp_path / "a").write_bytes(b"first\n" + b"x" * 40_000_000)
    for name in ("a", "a.gz"):
        lines = read_lines(tmp_path / name)
        assert next(lines) == "first"
        tracemalloc.start()
        with pytest.raises(ValueError, match=f"{name}:2: the line is longer than 16,777,216 bytes; break the text"):
            next(lines)
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
        tracemalloc.stop()
    monkeypatch.setattr("regard.data.text.pairs.MAX_LINE", 5)
    (tmp_path / "b").write_bytes(b"1234\n12345")
    assert list(read_lines(tmp_path / "b")) == ["1234", "12345"]


def test_a_small_file_that_unpacks_to_any_number_of_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gzip_bound, "_ALWAYS", 100_000)
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"abcdefghi\n" * 100_000))
    with pytest.raises(ValueError, match=r"a.gz:\d+: unpacks to more than [\d,]+ bytes, 200 times its size or more"):
        list(read_lines(path))
    draw = random.Random(0)
    path.write_bytes(gzip.compress(b"".join(b"%d\n" % draw.randrange(10**9) for _ in range(20_000))))
    assert len(list(read_lines(path))) == 20_000, "text that is packed as text is"


def test_empty_lines_at_the_end_are_no_records(tmp_path: Path) -> None:
    """In every format with one record per line; editors and shells add them."""
    (tmp_path / "0.wav").write_bytes(wav_bytes(Sound(np.zeros(800, np.float32), 8000)))
    Image.new("L", (4, 4)).save(tmp_path / "0.png")
    readers: dict[str, Callable[[Path], object]] = {
        "a\tb\nc\td\n": lambda path: read_pairs([path]).source,
        "x\tone text\ny\tanother\n": lambda path: read_labelled(path).texts,
        "x one text\ny another text\n": lambda path: read_labelled(path).texts,
        '{"label": "x", "text": "one"}\n': lambda path: read_labelled(path).texts,
        "x\tone text\tanother\n": lambda path: read_labelled_pairs(path).lines,
        "hello\tgood day\n": lambda path: read_dialogues(path, 10, lambda text, most: 1).dialogues,
        "0.wav\tab\n": read_transcripts,
        "0.png\tone caption\n": lambda path: read_captions(path).captions,
    }
    for text, reader in readers.items():
        ends = ("", "\n", "\n \r\n\n")
        first, *others = (len(reader(put(tmp_path / f"a{n}.txt", text + end))) for n, end in enumerate(ends))
        assert [first] * 2 == others, text
        with pytest.raises(ValueError, match="a.txt is empty; it must hold "):
            reader(put(tmp_path / "a.txt", "\n \n"))
