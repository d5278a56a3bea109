"""Hostile files made from seeds: every reader refuses them in one sentence, with bounded memory and no import.

    python -m benchmarks.robustness.hostile [--count 300] [--seed 0] [--seconds 20]

Each trial damages a small valid file by bits, blocks or fields, and gives it to its reader: checkpoints in safetensors
and pickles, config.json, tokenizer.json, WAV, NPY, GIF and TOML. A damage may leave a file valid, which may be read.
"""

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers

from benchmarks.robustness.damage import BYTES, CHANGES, change_json
from regard.cli.parsing import toml_config
from regard.data.audio.wav import read_wav
from regard.data.clips.frame_files import read_clip
from regard.models import GPT2
from regard.models.pretrained import load_pretrained, save_pretrained
from regard.tasks.translate.options import Translate

# the growth of the process that all trials together may cause, in bytes
MOST_MEMORY = 500_000_000


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
    "TOML": HostileFile("x.toml", lambda folder: toml_config.read(folder / "x.toml", {"task": Translate})),
}


def write_valid(folder: Path) -> None:
    """A valid file of every kind."""
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
    (folder / "x.toml").write_text('data = "dates"\nbatch = 3\nseed = 5\n')


def attempt(kind: str, folder: Path, draw: random.Random) -> str | None:
    """Damages one file of a new folder and reads it: the fault of the reader, None if it has none."""
    folder.mkdir()
    write_valid(folder)
    file = KINDS[kind]
    path = folder / file.path
    content = path.read_bytes()
    damage = draw.choice([*BYTES, *(CHANGES if path.suffix == ".json" else ())])
    is_field = damage in CHANGES
    damaged = (
        json.dumps(change_json(json.loads(content), draw, damage)).encode()
        if is_field
        else BYTES[damage](content, draw)
    )
    path.write_bytes(damaged)
    try:
        file.read(folder)
    except (ValueError, FileNotFoundError) as error:
        lines = str(error).splitlines()
        return None if len(lines) == 1 else f"{kind}, {damage}: {len(lines)} lines: {error}"
    except BaseException as error:
        return f"{kind}, {damage}: {type(error).__name__}: {error}"
    return None


def failures(count: int, seed: int, seconds: float | None = None) -> list[str]:
    """The faults of `count` trials over all kinds in turn; `seconds` bounds each trial."""
    draw = random.Random(seed)
    found: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        for number in range(count):
            kind = list(KINDS)[number % len(KINDS)]
            if number == len(KINDS):
                modules = set(sys.modules)
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            start = time.perf_counter()
            fault = attempt(kind, Path(name) / str(number), draw)
            if fault is not None:
                found.append(f"trial {number}: {fault}")
            if seconds is not None and time.perf_counter() - start > seconds:
                found.append(f"trial {number}: {kind} took longer than {seconds} seconds")
    if count > len(KINDS):
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        if grown > MOST_MEMORY:
            found.append(f"the process grew by {grown:,} bytes")
        known = ("torch", "numpy", "PIL", "regard", "tokenizers", "safetensors", "encodings")
        foreign = sorted(
            m for m in set(sys.modules) - modules if m.partition(".")[0] not in (*known, *sys.stdlib_module_names)
        )
        found += [f"{module} was imported" for module in foreign]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parsing = argparse.ArgumentParser(prog="python -m benchmarks.robustness.hostile", description="Read hostile files.")
    parsing.add_argument("--count", type=int, default=300, help="files (%(default)s)")
    parsing.add_argument("--seed", type=int, default=0, help="determines the damages (%(default)s)")
    parsing.add_argument("--seconds", type=float, default=20.0, help="most seconds per file (%(default)s)")
    given = parsing.parse_args(arguments)
    found = failures(given.count, given.seed, given.seconds)
    print("\n".join([*found, f"{given.count} hostile files, {len(found)} faults"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
