"""Files of signals: every format gives the same values, and every fault is one sentence with its line."""

from pathlib import Path

import numpy as np
import pytest
from tests.for_each import for_each

from regard.data.clips.files import has_split, labelled_signals, read_clips
from regard.data.clips.signal_files import read_signals

ROWS = {"b": [1.0, -2.5, 3.0], "a": [4.0, 5e-1]}


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.csv", "b,1,-2.5,3\na,4,0.5,\n"),
        ("x.csv", "class,t0,t1,t2\r\nb, 1,-2.5,3\r\n\r\na,4,.5\r\n"),
        ("x.tsv", "b\t1\t-2.5\t3\na\t4\t0.5\tNaN\n"),
        ("x.ts", "# a comment\n@problemName x\n@classLabel true a b\n@data\n1,-2.5,3:b\n4,0.5,?:a\n"),
    ],
)
def test_formats(tmp_path: Path, name: str, text: str) -> None:
    clips = labelled_signals(write(tmp_path / name, text))
    assert clips.classes == ("a", "b")
    assert clips.labels.tolist() == [1, 0]
    for clip, values in zip(clips.clips, ROWS.values(), strict=True):
        assert clip.dtype == np.float32
        assert clip[:, 0].tolist() == values


def test_a_ts_file_has_channels(tmp_path: Path) -> None:
    path = write(tmp_path / "x.ts", "@timestamps false\n@classlabel false\n@DATA\n1,2,3:4,5,6\n7,8:9,10\n")
    first, second = read_signals(path, labelled=False)
    assert first.values.tolist() == [[1, 4], [2, 5], [3, 6]]
    assert (second.values.shape, second.label, second.line) == ((2, 2), None, 5)


def test_a_signal_without_a_class(tmp_path: Path) -> None:
    column = read_signals(write(tmp_path / "x.csv", "value\n1\n2\n3\n"), labelled=False)
    row = read_signals(write(tmp_path / "y.csv", "1,2,3\n"), labelled=False)
    assert len(column) == len(row) == 1
    assert column[0].values.tolist() == row[0].values.tolist() == [[1], [2], [3]]


def test_classes_that_are_numbers_come_by_size(tmp_path: Path) -> None:
    assert labelled_signals(write(tmp_path / "x.csv", "10,1,2\n-1,1,2\n9,1,2\n")).classes == ("-1", "9", "10")


def test_the_archive_has_a_file_to_test_on(tmp_path: Path) -> None:
    train = write(tmp_path / "Coffee_TRAIN.tsv", "0\t1\t2\n1\t3\t4\n")
    assert not has_split(train, "test")
    write(tmp_path / "Coffee_TEST.tsv", "1\t5\t6\n")
    assert has_split(train, "test")
    assert read_clips(train).clips[0].tolist() == [[1], [2]]
    assert read_clips(train, "test").clips[0].tolist() == [[5], [6]]
    assert not has_split(write(tmp_path / "x.tsv", "0\t1\t2\n"), "test")


@for_each(
    ("name", "text", "sentence"),
    [
        ("x.csv", "", "holds no signal; give one per line, its class first"),
        ("x.csv", "a,1,2\n,3,4\n", "line 2: the first cell should be a class, and it is empty; name the class"),
        ("x.csv", "a,1,2\nb,1,x\n", "line 2: a sample should be a number, got 'x'; fix it"),
        ("x.csv", "a,1,,2\n", "line 1: sample 2 is missing; fill in a finite number"),
        ("x.csv", "a,1,inf\n", "line 1: sample 2 is inf; fill in a finite number"),
        ("x.csv", "a,1\n", "line 1: the signal has 1 sample, and two or more are needed; give more, or take"),
        ("x.tsv", "a\tNaN\t\nb\t1\t2\n", "line 1: the signal has 0 samples, and two or more are needed"),
        ("x.ts", "1,2:a\n", "has no line @data, behind which the signals of a .ts file stand; add it"),
        ("x.ts", "@timeStamps true\n@data\n1,2:a\n", "gives a time with every sample"),
        ("x.ts", "@data\n1,2:a\n", r"has no classes \(no line @classLabel true\); give a file with classes"),
        ("x.ts", "@classLabel true a\n@data\n1,2,3\n", "line 3: the line should end with a colon and its class; add"),
        ("x.ts", "@classLabel true a\n@data\n1,2:3,4,5:a\n", "line 3: its channels differ in length, 2, 3 samples"),
        ("x.ts", "@classLabel true a\n@data\n1,2:3,4:a\n1,2:a\n", "line 4: the signal has 1 channels, the first one"),
    ],
)
def test_wrong_files(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    path = write(tmp_path / name, text)
    with pytest.raises(ValueError, match=sentence) as caught:
        read_clips(path)
    assert str(path) in str(caught.value)


def test_files_that_are_no_signals(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"a,1,\xff\n")
    with pytest.raises(ValueError, match=r"x.csv is no text in UTF-8 \(.*\); save it as text"):
        read_clips(tmp_path / "x.csv")
    with pytest.raises(ValueError, match="there is no .*y.csv; name a folder of clips, or a file of signals"):
        read_clips(tmp_path / "y.csv")
    with pytest.raises(ValueError, match=r"y.csv cannot be read \(No such file or directory\); name a file that is"):
        read_signals(tmp_path / "y.csv", labelled=True)
    write(tmp_path / "x.txt", "a,1,2")
    with pytest.raises(ValueError, match=r"x.txt is no file of signals \(.csv, .tsv, .ts\); name one, or a folder of"):
        read_clips(tmp_path / "x.txt")
    write(tmp_path / "z.csv", "a,1,2")
    with pytest.raises(ValueError, match="size=8 is for pictures, and .*z.csv holds signals; leave it out"):
        read_clips(tmp_path / "z.csv", size=8)
