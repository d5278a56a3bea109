"""Transcripts in every layout that is read, and what is refused."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.for_each import for_each

from regard.data.audio.transcripts import read_transcripts


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_a_table(tmp_path: Path) -> None:
    write(tmp_path, {"s.tsv": "a.wav\tone two\nb/c.wav\tthree\n", "a.wav": "", "b/c.wav": ""})
    files = read_transcripts(tmp_path / "s.tsv")
    assert [(file.path.relative_to(tmp_path).as_posix(), file.text) for file in files] == [
        ("a.wav", "one two"),
        ("b/c.wav", "three"),
    ]
    assert files[1].line == f"{tmp_path / 's.tsv'}:2"


def test_kaldi(tmp_path: Path) -> None:
    write(tmp_path, {"wav.scp": "u1 x/a.wav\nu2 b.wav\n", "text": "u2 hello world\n", "x/a.wav": "", "b.wav": ""})
    (file,) = read_transcripts(tmp_path)
    assert (file.path, file.text) == (tmp_path / "b.wav", "hello world")


def test_librispeech(tmp_path: Path) -> None:
    lines = "1-2-0000 HELLO WORLD\n1-2-0001 BYE\n"
    write(tmp_path, {"1/2/1-2.trans.txt": lines, "1/2/1-2-0000.wav": "", "1/2/1-2-0001.wav": ""})
    assert [file.text for file in read_transcripts(tmp_path)] == ["HELLO WORLD", "BYE"]


REFUSED: dict[str, dict[str, str]] = {
    "; name a .tsv file of sound, or a folder of Kaldi or LibriSpeech": {},
    "s.tsv:2: a line must be the path of a WAV file, tab, transcript, got 'b.wav'; fix or remove it": {
        "s.tsv": "a.wav\tone\nb.wav\n"
    },
    "s.tsv:1: there is a transcript and no sound": {"s.tsv": "a.wav\tone\n"},
    "holds neither wav.scp and text, as Kaldi has them, nor *.trans.txt": {"s/readme": ""},
    "has wav.scp and no text, so its sound has no transcripts; add it": {"s/wav.scp": "u a.wav\n"},
    "wav.scp:1: 'sph2pipe a.sph |' is a command, and commands are not run": {
        "s/wav.scp": "u sph2pipe a.sph |\n",
        "s/text": "u one\n",
    },
    "text:1: there is a transcript of v and no sound in wav.scp": {"s/wav.scp": "u a.wav\n", "s/text": "v one\n"},
    "text:1: a line must be an identifier and a transcript, got 'u'": {"s/wav.scp": "u a.wav\n", "s/text": "u\n"},
    "segments cuts recordings into parts, which is not read; cut them into files": {
        "s/wav.scp": "u a.wav\n",
        "s/text": "u one\n",
        "s/segments": "",
    },
    "u.flac is FLAC, and WAV is read; convert all, as in: for f in": {"s/u.trans.txt": "u ONE\n", "s/u.flac": ""},
}


@for_each("message", REFUSED)
def test_refused(message: str, tmp_path: Path) -> None:
    write(tmp_path, REFUSED[message])
    path = tmp_path / ("s" if any(name.startswith("s/") for name in REFUSED[message]) else "s.tsv")
    with pytest.raises(ValueError, match=re.escape(message)):
        read_transcripts(path)
