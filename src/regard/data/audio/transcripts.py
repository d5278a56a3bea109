"""Files of sound with their transcripts, in the layouts of the field.  No torch here.

speech.tsv           one line per file: the path of a WAV file, tab, transcript
folder/wav.scp,text  Kaldi: identifier and path, identifier and transcript
folder/**/*.trans.txt  LibriSpeech: identifier and transcript, beside identifier.wav
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.data.text.pairs import read_records

_SCP, _TEXT, _SEGMENTS = "wav.scp", "text", "segments"
_LIBRISPEECH = "*.trans.txt"


@dataclass(frozen=True)
class SpokenFile:
    """A WAV file, its transcript, and the line that pairs them."""

    path: Path
    text: str
    line: str  # "file:number", for errors


def read_transcripts(path: Path) -> list[SpokenFile]:
    """The files that a .tsv file or a folder names; every one of them exists."""
    if not path.exists():
        raise ValueError(f"there is no {path}; name a .tsv file of sound, or a folder of Kaldi or LibriSpeech")
    if not path.is_dir():
        spoken = list(_of_tsv(path))
    elif (path / _SCP).exists():
        spoken = list(_of_kaldi(path))
    elif files := sorted(path.rglob(_LIBRISPEECH)):
        spoken = [each for file in files for each in _of_librispeech(file)]
    else:
        raise ValueError(
            f"{path} holds neither {_SCP} and {_TEXT}, as Kaldi has them, nor {_LIBRISPEECH}, as LibriSpeech has; "
            "write a .tsv file with the path of a WAV file, tab, transcript, one per line"
        )
    for each in spoken:
        _check_sound(each)
    return spoken


def _of_tsv(path: Path) -> Iterator[SpokenFile]:
    for number, line in enumerate(read_records(path, "the path of a WAV file, tab, transcript, one per line"), 1):
        parts = line.split("\t")
        if len(parts) != 2 or not all(part.strip() for part in parts):
            raise ValueError(
                f"{path}:{number}: a line must be the path of a WAV file, tab, transcript, got {line[:60]!r}; "
                "fix or remove it"
            )
        yield SpokenFile(path.parent / parts[0], parts[1].strip(), f"{path}:{number}")


def _of_kaldi(folder: Path) -> Iterator[SpokenFile]:
    if not (folder / _TEXT).exists():
        raise ValueError(f"{folder} has {_SCP} and no {_TEXT}, so its sound has no transcripts; add it")
    if (folder / _SEGMENTS).exists():
        raise ValueError(
            f"{folder / _SEGMENTS} cuts recordings into parts, which is not read; cut them into files, as in: "
            "extract-segments scp:wav.scp segments ark,scp:…"
        )
    paths: dict[str, Path] = {}
    for number, (name, place) in _identified(folder / _SCP, "an identifier and the path of a WAV file"):
        if place.endswith("|"):
            raise ValueError(
                f"{folder / _SCP}:{number}: {place[:60]!r} is a command, and commands are not run; write its output "
                "into a WAV file and name that"
            )
        paths[name] = folder / place
    for number, (name, text) in _identified(folder / _TEXT, "an identifier and a transcript"):
        if name not in paths:
            raise ValueError(
                f"{folder / _TEXT}:{number}: there is a transcript of {name} and no sound in {_SCP}; add it there, or "
                "remove the transcript"
            )
        yield SpokenFile(paths[name], text, f"{folder / _TEXT}:{number}")


def _of_librispeech(file: Path) -> Iterator[SpokenFile]:
    for number, (name, text) in _identified(file, "an identifier and a transcript"):
        yield SpokenFile(file.parent / f"{name}.wav", text, f"{file}:{number}")


def _identified(path: Path, content: str) -> Iterator[tuple[int, tuple[str, str]]]:
    """The lines of a file, cut behind the identifier."""
    for number, line in enumerate(read_records(path, f"{content}, one per line"), 1):
        name, _, rest = line.strip().partition(" ")
        if not name or not rest.strip():
            raise ValueError(f"{path}:{number}: a line must be {content}, got {line[:60]!r}; fix or remove it")
        yield number, (name, rest.strip())


def _check_sound(spoken: SpokenFile) -> None:
    path = spoken.path
    if path.is_file():
        return
    if (flac := path.with_suffix(".flac")).is_file():
        raise ValueError(
            f"{spoken.line}: {flac} is FLAC, and WAV is read; convert all, as in: "
            f"for f in {path.parent}/*.flac; do ffmpeg -i $f ${{f%.flac}}.wav; done"
        )
    raise ValueError(
        f"{spoken.line}: there is a transcript and no sound, {path} is not there; add it, or remove the line"
    )
