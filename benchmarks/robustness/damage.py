"""Damaged run folders: every damage ends a command with one sentence and exit code 2.

    python -m benchmarks.robustness.damage [--count 500] [--seed 0] [--tasks NAME …]

A tiny run per task is trained once. Each trial copies it, damages one file and runs a command that reads this file:
evaluate, predict or train --resume. Three of four trials leave the checksums as they are: bits flip, files are cut,
headers and fields of JSON change; all of these must be refused. The fourth writes a valid checksum over the changed
fields, so that the validation of the fields is tried alone; a changed value may then be valid, and the command may
succeed, but it must not end in a traceback.
"""

import argparse
import contextlib
import io
import json
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.tasks.cases import CASES, task_of, with_paths, write_files

from benchmarks import measured
from benchmarks.measured import About
from regard.cli.main import main as regard
from regard.common import checksums
from regard.common.json_files import with_checksum
from regard.common.safetensors_files import encode
from regard.training.run_folder import BEST, LAST, RECORD

NAME = "damage"
_STEPS = ["--threads", "1", "--device", "cpu", "--validate-every", "2", "--warmup", "1", "--steps", "2"]
Command = list[str]


@dataclass(frozen=True)
class TinyRun:
    """A trained run: its folder, and the arguments of `regard predict` after it."""

    task: str
    folder: Path
    predict: Sequence[str]

    def files(self) -> dict[str, list[str]]:
        """The files that have a checksum, and the commands that read each of them."""
        files = {RECORD: ["evaluate", "predict", "resume"], BEST: ["evaluate", "predict"], LAST: ["resume"]}
        recorded = json.loads((self.folder / RECORD).read_text(encoding="utf-8"))["files"]
        files |= {name: ["evaluate", "predict", "resume"] for name in recorded}
        own = {"baseline.safetensors": ["evaluate"], "judge.safetensors": ["resume"]}
        return files | {name: verbs for name, verbs in own.items() if (self.folder / name).exists()}

    def command(self, verb: str, folder: Path) -> Command:
        if verb == "resume":
            return ["train", "--resume", str(folder), "--steps", "3"]
        return [verb, str(folder), *(self.predict if verb == "predict" else ())]


def train_runs(folder: Path, tasks: Sequence[str]) -> list[TinyRun]:
    """A run of two steps per task, with the options of tests/tasks/cases.py, which lists every task."""
    write_files(folder)
    runs = []
    for task in tasks:
        case = CASES[task]
        options = [*with_paths(case.options, folder), *_STEPS]
        code, text = run_command(["train", task_of(task), *options, "--out", str(folder / task)])
        if code != 0:
            raise RuntimeError(f"the run of {task} failed: {text}")
        given = [str(folder / "random.png") if given == "IMAGE" else given for given in case.inputs]
        picture = case.predict.replace("OUT", str(folder / f"{task}.png")).split()
        runs.append(TinyRun(task, folder / task, [*given, *picture]))
    return runs


@dataclass(frozen=True)
class Trial:
    """One damage: its place, the command, and its outcome."""

    task: str
    file: str
    damage: str
    verb: str
    signed: bool  # whether the damaged file has a valid checksum
    code: int | None  # None if the command ended in a traceback
    text: str  # of the error

    @property
    def outcome(self) -> str:
        if self.code is None:
            return "traceback"
        # a note may stand before the error
        if self.code == 2 and self.text and all(line.startswith("regard: ") for line in self.text.splitlines()):
            return "sentence"
        return "accepted" if self.code == 0 else "other"


@dataclass(frozen=True)
class Result:
    """The numbers of outcomes: by damage of files whose checksum was left, and of files that were signed again."""

    about: About
    unsigned: dict[str, dict[str, int]]
    signed: dict[str, int]
    failures: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        return "falls short" if self.failures else "reached"


# Damages of bytes: each takes the content and returns another one


def flip_bit(content: bytes, draw: random.Random) -> bytes:
    flipped = bytearray(content)
    bit = draw.randrange(8 * len(content))
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


def flip_bit_of_header(content: bytes, draw: random.Random) -> bytes:
    """A bit of the first bytes: lengths, formats, checksums, names, shapes."""
    end = min(len(content), 8 + int.from_bytes(content[:8], "little")) if content[8:9] == b"{" else len(content)
    return flip_bit(content[:end], draw) + content[end:]


def truncate(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def overwrite(content: bytes, draw: random.Random) -> bytes:
    """A block of zeros or of random bytes, as a lost sector leaves."""
    size = min(draw.choice((1, 16, 512)), len(content))
    start = draw.randrange(len(content) - size + 1)
    block = bytes(size) if draw.random() < 0.5 else draw.randbytes(size)
    if block == content[start : start + size]:
        block = bytes(byte ^ 255 for byte in block)
    return content[:start] + block + content[start + size :]


BYTES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "bit flip": flip_bit,
    "bit flip of the header": flip_bit_of_header,
    "truncation": truncate,
    "overwritten block": overwrite,
}


# Damages of JSON


def _paths(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all values inside."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, item in items for path in [(*before, key), *_paths(item, (*before, key))]]


def _change(value: Any, path: Sequence[Any], change: Callable[[Any, Any], None]) -> Any:
    """A copy of the value in which `change` was called with the parent and the key of a place."""
    copy = json.loads(json.dumps(value))
    parent = copy
    for key in path[:-1]:
        parent = parent[key]
    change(parent, path[-1])
    return copy


def _set(value: Any) -> Callable[[Any, Any], None]:
    def change(parent: Any, key: Any) -> None:
        parent[key] = value

    return change


def _delete(parent: Any, key: Any) -> None:
    del parent[key]


def _deep(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


# the changes of a field; huge values only where no valid value is huge
CHANGES: dict[str, Sequence[Callable[[Any, Any], None]]] = {
    "deleted": [_delete],
    "retyped": [_set(value) for value in ("x", None, {}, [[]], True, 0.5, [1], {"a": 1}, "\x1b[2J", "ä" * 500)],
    "negative": [_set(-1), _set(-(10**18)), _set(-0.5)],
    "huge": [_set(10**30), _set(10**400), _set(1e308), _set("x" * 100_000)],
    "nested": [_set(_deep(400))],
}


def change_json(content: Any, draw: random.Random, kind: str, fields: Sequence[str] = ()) -> Any:
    """The JSON with one field changed, below one of these fields if any are named; another value than before."""
    paths = [path for path in _paths(content) if not fields or path[0] in fields]
    while True:
        changed = _change(content, draw.choice(paths), draw.choice(CHANGES[kind]))
        if json.dumps(changed) != json.dumps(content):
            return changed


def _split(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and its tensors."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def _join(header: Mapping[str, Any], data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def change_field(content: bytes, draw: random.Random, kind: str) -> bytes:
    """A file with a changed field of its JSON: of the header or of the metadata of a safetensors file."""
    if content[:1] == b"{":
        return json.dumps(change_json(json.loads(content), draw, kind), indent=2).encode()
    header, data = _split(content)
    if draw.random() < 0.3:
        return _join(change_json(header, draw, kind), data)
    metadata = header["__metadata__"]
    key = next(name for name in metadata if name != "checksum")
    metadata[key] = json.dumps(change_json(json.loads(metadata[key]), draw, kind))
    return _join(header, data)


def change_signed(path: Path, draw: random.Random, kind: str) -> None:
    """Changes a field and writes a valid checksum over it."""
    if path.name == RECORD:
        # no huge options, which may be valid: a training that takes forever
        fields = [
            "task",
            "threads",
            "versions",
            "history",
            "files",
            *([] if kind == "huge" else ["options", "training"]),
        ]
        content = change_json(json.loads(path.read_bytes()), draw, kind, fields)
        path.write_bytes(with_checksum(content))
        return
    if path.suffix == ".json":
        path.write_text(json.dumps(change_json(json.loads(path.read_bytes()), draw, kind)), encoding="utf-8")
        record = json.loads((path.parent / RECORD).read_bytes())
        record["files"][path.name] = checksums.of_file(path)
        (path.parent / RECORD).write_bytes(with_checksum(record))
        return
    from safetensors.torch import load_file

    header, _ = _split(path.read_bytes())
    key = next(name for name in header["__metadata__"] if name != "checksum")
    facts = change_json(json.loads(header["__metadata__"][key]), draw, kind)
    path.write_bytes(b"".join(encode(load_file(path), {key: json.dumps(facts)})))


def run_command(words: Command) -> tuple[int | None, str]:
    """The exit code of a command in this process, None for a traceback; and its output on stderr."""
    out, error = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            code = regard(words)
    except BaseException:
        return None, traceback.format_exc()
    return code, error.getvalue()


def attempt(tiny: TinyRun, draw: random.Random, folder: Path, signed: bool) -> Trial:
    """Damages one file of a copy of the run, and runs a command that reads it."""
    run = folder / "run"
    shutil.copytree(tiny.folder, run)
    files = tiny.files()
    try:
        if signed:
            name = draw.choice(list(files))
            damage = draw.choice(list(CHANGES))
            change_signed(run / name, draw, damage)
        else:
            name = draw.choice(list(files))
            damage = draw.choice([*BYTES, *CHANGES])
            content = (run / name).read_bytes()
            damaged = BYTES[damage](content, draw) if damage in BYTES else change_field(content, draw, damage)
            assert damaged != content
            (run / name).write_bytes(damaged)
        verb = draw.choice(files[name])
        code, text = run_command(tiny.command(verb, run))
    finally:
        shutil.rmtree(run)
    return Trial(tiny.task, name, damage, verb, signed, code, text)


def measure(
    runs: Sequence[TinyRun], folder: Path, count: int, seed: int = 0, say: Callable[[str], None] = print
) -> Result:
    """`count` damages that must be refused, and a third as many with a valid checksum, over all runs in turn."""
    draw = random.Random(seed)
    unsigned: dict[str, Counter[str]] = {damage: Counter() for damage in (*BYTES, *CHANGES)}
    signed: Counter[str] = Counter()
    failures = []
    for number in range(count + count // 3):
        is_signed = number >= count
        trial = attempt(runs[number % len(runs)], draw, folder, is_signed)
        (signed if is_signed else unsigned[trial.damage])[trial.outcome] += 1
        if trial.outcome not in ("sentence", "accepted" if is_signed else "sentence"):
            failures.append(f"{trial.outcome}: {trial}")
            say(failures[-1])
        if (number + 1) % 50 == 0:
            say(f"{number + 1} trials, {len(failures)} failures")
    return Result(About.now(), {name: dict(counter) for name, counter in unsigned.items()}, dict(signed), failures)


def table(result: Result) -> str:
    outcomes = ("sentence", "accepted", "traceback", "other")
    rows = [[damage, *(str(counts.get(name, 0)) for name in outcomes)] for damage, counts in result.unsigned.items()]
    totals = [sum(counts.get(name, 0) for counts in result.unsigned.values()) for name in outcomes]
    rows.append(["all", *map(str, totals)])
    rows.append(["a field, with a valid checksum", *(str(result.signed.get(name, 0)) for name in outcomes)])
    return measured.table(["damage", "one sentence", "accepted", "traceback", "other"], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parsing = argparse.ArgumentParser(prog="python -m benchmarks.robustness.damage", description="Damage run folders.")
    parsing.add_argument("--count", type=int, default=500, help="damages that must be refused (%(default)s)")
    parsing.add_argument("--seed", type=int, default=0, help="determines the damages (%(default)s)")
    parsing.add_argument("--tasks", nargs="+", choices=list(CASES), default=list(CASES), help="(all)")
    parsing.add_argument("--runs", type=Path, default=Path("runs"), help="folder for the result (%(default)s)")
    given = parsing.parse_args(arguments)
    if given.count < 1:
        parsing.error(f"--count must be 1 or more, got {given.count}")
    with tempfile.TemporaryDirectory() as folder:
        runs = train_runs(Path(folder), given.tasks)
        result = measure(runs, Path(folder), given.count, given.seed)
    print(table(result), end="")
    print(f"written: {measured.write(given.runs / NAME / 'result.json', result)}")
    return 0 if result.verdict == "reached" else 1


if __name__ == "__main__":
    sys.exit(main())
