"""Hostile files made from seeds: every reader refuses them in one sentence, with bounded memory and no import.

    python -m benchmarks.robustness.hostile [--count 300] [--seed 0] [--seconds 20]

First every bomb of `benchmarks.robustness.bombs` is written over a valid file, and its reader must refuse it. Each
further trial damages a small valid file by bits, blocks or fields, and gives it to its reader: checkpoints in
safetensors and pickles, config.json, tokenizer.json, WAV, NPY, GIF, PNG, TOML, JSON and packed lines, and the files of
a run. Such a damage may leave a file valid, which may be read.
"""

import argparse
import gzip
import json
import random
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers

from benchmarks.robustness.bombs import BOMBS
from benchmarks.robustness.damage import BYTES, CHANGES, change_json, train_runs
from regard.cli.parsing import toml_config
from regard.common import image_files
from regard.data.audio.wav import read_wav
from regard.data.clips.frame_files import read_clip
from regard.data.questions.squad import read_questions
from regard.data.text.pairs import read_lines
from regard.models import GPT2
from regard.models.pretrained import load_pretrained, save_pretrained
from regard.tasks.loading import load_run
from regard.tasks.translate.options import Translate

# the growth of the process that a trial may cause, in bytes
MOST_MEMORY = 300_000_000


@dataclass(frozen=True)
class HostileFile:
    """A kind of file: its path below a folder, and its reader, which is called with the folder."""

    path: str
    read: Callable[[Path], object]


def _read_pickle(folder: Path) -> object:
    (folder / "model.safetensors").unlink(missing_ok=True)
    return load_pretrained(folder)


KINDS: dict[str, HostileFile] = {
    "safetensors": HostileFile("model.safetensors", load_pretrained),
    "pickle": HostileFile("pytorch_model.bin", _read_pickle),
    "config.json": HostileFile("config.json", load_pretrained),
    "tokenizer.json": HostileFile("tokenizer.json", lambda folder: load_pretrained(folder).load_tokenizer()),
    "WAV": HostileFile("x.wav", lambda folder: read_wav(folder / "x.wav")),
    "NPY": HostileFile("x.npy", lambda folder: read_clip(folder / "x.npy")),
    "GIF": HostileFile("x.gif", lambda folder: read_clip(folder / "x.gif")),
    "PNG": HostileFile("x.png", lambda folder: image_files.read(folder / "x.png")),
    "JSON": HostileFile("x.json", lambda folder: read_questions(folder / "x.json")),
    "lines": HostileFile("x.txt.gz", lambda folder: list(read_lines(folder / "x.txt.gz"))),
    **{
        name: HostileFile(f"run/{name}", lambda folder: load_run(folder / "run", "best", "cpu"))
        for name in ("run.json", "best.safetensors", "tokens.json")
    },
    "TOML": HostileFile("x.toml", lambda folder: toml_config.read(folder / "x.toml", {"task": Translate})),
}


def write_valid(folder: Path, run: Path) -> None:
    """A valid file of every kind; `run` is a run that is copied."""
    shutil.copytree(run, folder / "run")
    torch.manual_seed(0)
    model = GPT2(7, width=4, layers=2, heads=2, longest=5)
    save_pretrained(model, folder)
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    words = {word: n for n, word in enumerate(("<unk>", "a", "b", "c"))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    samples = (np.sin(np.arange(800) / 9) * 9000).astype("<i2").tobytes()
    form = b"fmt " + (16).to_bytes(4, "little") + bytes.fromhex("01000100401f0000803e000002001000")
    body = b"WAVE" + form + b"data" + len(samples).to_bytes(4, "little") + samples
    (folder / "x.wav").write_bytes(b"RIFF" + len(body).to_bytes(4, "little") + body)
    np.save(folder / "x.npy", np.zeros((3, 5, 7), np.uint8))
    frames = [Image.fromarray(np.full((5, 7), 40 * n, np.uint8)) for n in range(3)]
    frames[0].save(folder / "x.gif", save_all=True, append_images=frames[1:])
    frames[0].save(folder / "x.png")
    question = {"id": "1", "question": "Who?", "answers": [{"text": "He", "answer_start": 0}]}
    paragraphs = [{"context": "He did.", "qas": [question]}]
    (folder / "x.json").write_text(json.dumps({"data": [{"title": "a", "paragraphs": paragraphs}]}))
    (folder / "x.txt.gz").write_bytes(gzip.compress(b"a b\nc d\n"))
    (folder / "x.toml").write_text('data = "dates"\nbatch = 3\nseed = 5\n')


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raises TimeoutError inside after so many seconds."""

    def stop(number: int, frame: object) -> None:
        raise TimeoutError(f"it took longer than {seconds} seconds")

    if seconds is None:
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def read_hostile(kind: str, folder: Path, seconds: float | None, *, may_be_valid: bool) -> str | None:
    """The fault of a reader; None if it has none."""
    try:
        with time_limit(seconds):
            KINDS[kind].read(folder)
    except (ValueError, FileNotFoundError) as error:
        lines = str(error).splitlines()
        return None if len(lines) == 1 else f"{len(lines)} lines: {error}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return None if may_be_valid else "it was read"


def detonate(name: str, folder: Path, run: Path, seconds: float | None = None) -> str | None:
    """Writes a bomb into a new folder and reads it: the fault of the reader, None if it has none."""
    folder.mkdir()
    write_valid(folder, run)
    bomb = BOMBS[name]
    bomb.write(folder / KINDS[bomb.kind].path)
    return read_hostile(bomb.kind, folder, seconds, may_be_valid=False)


def damage_file(kind: str, folder: Path, run: Path, draw: random.Random, seconds: float | None = None) -> str | None:
    """Damages one file of a new folder and reads it: the fault of the reader, None if it has none."""
    folder.mkdir()
    write_valid(folder, run)
    path = folder / KINDS[kind].path
    content = path.read_bytes()
    damage = draw.choice([*BYTES, *(CHANGES if path.suffix == ".json" else ())])
    is_field = damage in CHANGES
    damaged = (
        json.dumps(change_json(json.loads(content), draw, damage)).encode()
        if is_field
        else BYTES[damage](content, draw)
    )
    path.write_bytes(damaged)
    fault = read_hostile(kind, folder, seconds, may_be_valid=True)
    return None if fault is None else f"{damage}: {fault}"


def failures(count: int, seed: int, seconds: float | None = None, bombs: int = len(BOMBS)) -> list[str]:
    """The faults of bombs, and of damages of all kinds in turn, `count` trials; `seconds` bounds each trial.

    `bombs` are drawn where these are fewer than all.
    """
    draw = random.Random(seed)
    exploded = draw.sample(list(BOMBS), bombs)
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        parent = Path(name)
        (trained,) = train_runs(parent, ["language-model"])
        (parent / "valid").mkdir()
        write_valid(parent / "valid", trained.folder)
        for kind, file in KINDS.items():
            file.read(parent / "valid")  # valid, and its modules are imported
            if kind == "pickle":  # whose reader removes the safetensors
                shutil.rmtree(parent / "valid")
                (parent / "valid").mkdir()
                write_valid(parent / "valid", trained.folder)
        modules = set(sys.modules)
        for number in range(count):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            folder = parent / str(number)
            if number < bombs:
                title = exploded[number]
                fault = detonate(title, folder, trained.folder, seconds)
            else:
                title = list(KINDS)[number % len(KINDS)]
                fault = damage_file(title, folder, trained.folder, draw, seconds)
            shutil.rmtree(folder)
            if fault is not None:
                faults.append(f"trial {number}, {title}: {fault}")
            grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
            if grown > MOST_MEMORY:
                faults.append(f"trial {number}, {title}: the process grew by {grown:,} bytes")
    known = ("torch", "numpy", "PIL", "regard", "tokenizers", "safetensors", "encodings")
    foreign = sorted(
        m for m in set(sys.modules) - modules if m.partition(".")[0] not in (*known, *sys.stdlib_module_names)
    )
    return [*faults, *(f"{module} was imported" for module in foreign)]


def main(arguments: Sequence[str] | None = None) -> int:
    parsing = argparse.ArgumentParser(prog="python -m benchmarks.robustness.hostile", description="Read hostile files.")
    parsing.add_argument("--count", type=int, default=300, help="files (%(default)s)")
    parsing.add_argument("--seed", type=int, default=0, help="determines the damages (%(default)s)")
    parsing.add_argument("--seconds", type=float, default=20.0, help="most seconds per file (%(default)s)")
    given = parsing.parse_args(arguments)
    faults = failures(given.count, given.seed, given.seconds)
    print("\n".join([*faults, f"{given.count} hostile files, {len(faults)} faults"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
