"""Files of one's own for every task: examples that are told apart by their numbers, and options of a small model."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from regard.data.audio.wav import Sound, wav_bytes

# the number of an example, and words of it
Item = tuple[int, str]
Write = Callable[[Path, Sequence[int]], Path]


def numbered(line: str) -> Callable[[Sequence[Item], str], str]:
    """The text of a file with one line, or several, per item; labels are letters of `labels` in turn."""

    def write(items: Sequence[Item], labels: str) -> str:
        rows = ((k, n, phrase, labels[n % len(labels)]) for k, (n, phrase) in enumerate(items))
        return "".join(line.format(k=k, n=n, phrase=p, word=p.split()[0], label=label) for k, n, p, label in rows)

    return write


def squad(items: Sequence[Item], labels: str) -> str:
    paragraphs = [
        {
            "context": f"{n} {phrase}",
            "qas": [{"id": f"{k}", "question": f"{phrase}?", "answers": [{"text": str(n), "answer_start": 0}]}],
        }
        for k, (n, phrase) in enumerate(items)
    ]
    return json.dumps({"data": [{"paragraphs": paragraphs}]}, ensure_ascii=False, indent=1)


def turns(items: Sequence[Item], labels: str) -> str:
    rows = numbered("{k}\t1\t\t{phrase} {n}\t\t\n{k}\t2\t?\t{label} {phrase}\tx={label}\ty\n")(items, labels)
    return "dialogue\tturn\tsystem\tuser\tinform\trequest\n" + rows


DIALOGUES = numbered("{phrase} {n}\thi {n}\tbye {phrase}\n")
PAIRS = numbered("{phrase} {n}\t{n} {phrase}\n")
LINES = numbered("{n} {phrase} {label} {phrase} is long enough\n")
# the text of a file of every task that reads text
TEXTS: dict[str, Callable[[Sequence[Item], str], str]] = {
    "answer": numbered("1 Al{n} is {phrase} {label}.\n2 Where is Al{n} {phrase}?\t{label}\t1\n"),
    "caption": numbered("{n}.png\t{phrase} {label}\n"),
    "classify-text": numbered("{label}\t{phrase} {n}\n"),
    "embed": PAIRS,
    "language-model": LINES,
    "masked-lm": LINES,
    "match": numbered("{label}\t{phrase} {n}\t{n} {phrase}\n"),
    "read": squad,
    "respond": DIALOGUES,
    "select-response": DIALOGUES,
    "tag": numbered("{word}\t{label}\n{n}\t{label}\n\n"),
    "track": turns,
    "transcribe": numbered("{n}.wav\t{word}{label}\n"),
    "translate": PAIRS,
}


def pixels(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (8, 8), np.uint8)


def write_pictures(folder: Path, numbers: Sequence[int]) -> None:
    for n in numbers:
        Image.fromarray(pixels(n)).save(folder / f"{n}.png")


def write_sounds(folder: Path, numbers: Sequence[int]) -> None:
    for n in numbers:
        samples = np.random.default_rng(n).uniform(-0.5, 0.5, 900).astype(np.float32)
        (folder / f"{n}.wav").write_bytes(wav_bytes(Sound(samples, 8000)))


# the pictures and sounds that texts name
MEDIA = {"caption": write_pictures, "transcribe": write_sounds}


def text_file(name: str) -> Write:
    """A writer of the text of a task, and of the files that it names."""

    def write(folder: Path, numbers: Sequence[int]) -> Path:
        if name in MEDIA:
            MEDIA[name](folder, numbers)
        path = folder / ("train.json" if name == "read" else "train.tsv")
        path.write_text(TEXTS[name]([(n, f"the number {n}") for n in numbers], "ab"))
        return path

    return write


def class_folders(save: Callable[[Path, int], object]) -> Write:
    """A writer of one file per number into the folder of its class."""

    def write(folder: Path, numbers: Sequence[int]) -> Path:
        shutil.rmtree(folder / "train", ignore_errors=True)
        for k, n in enumerate(numbers):
            (folder / "train" / "ab"[n % 2]).mkdir(parents=True, exist_ok=True)
            save(folder / "train" / "ab"[n % 2] / f"{k:03}", n)
        return folder / "train"

    return write


images = class_folders(lambda path, n: Image.fromarray(pixels(n)).save(path.with_suffix(".png")))
clips = class_folders(lambda path, n: np.save(path.with_suffix(".npy"), np.stack([pixels(n), pixels(n)])))


class FileTask(NamedTuple):
    """A writer of examples with these numbers, and options of a small model."""

    write: Write
    options: dict[str, Any]


RECURRENT = {"embedding": 5, "characters": 4, "hidden": 6}
STACK = {"tokens": "characters", "width": 8, "heads": 2, "layers": 1}
OPTIONS: dict[str, dict[str, Any]] = {
    "answer": {"width": 6, "restarts": 1},
    "caption": {"tokens": "words", "annotation": 6, "channels": 4, "width": 5, "hidden": 7},
    "classify-text": {"width": 5, "hidden": 6, "hops": 2, "feed": 7},
    "embed": {**STACK, "valid_pairs": 5},
    "language-model": {**STACK, "segment": 24},
    "masked-lm": {**STACK, "segment": 24},
    "match": RECURRENT,
    "read": RECURRENT,
    "respond": {"tokens": "words", "model": "hierarchical", "width": 6, "hidden": 8},
    "select-response": {"embedding": 5, "width": 6, "levels": 1, "candidates": 3},
    "tag": RECURRENT,
    "track": {"embedding": 5, "hidden": 6},
    "transcribe": {"width": 6, "hidden": 8, "mels": 13, "rate": 8000},
    "translate": {"tokens": "words", "width": 6, "hidden": 8, "valid_lines": 5},
}
FILE_TASKS: dict[str, FileTask] = {
    **{name: FileTask(text_file(name), options) for name, options in OPTIONS.items()},
    "classify-clip": FileTask(clips, {"width": 4, "depths": (1,)}),
    "classify-image": FileTask(images, {"width": 4, "depths": (1,)}),
    "glimpse": FileTask(images, {"what": 4, "where": 4, "glimpse": 6, "hidden": 6, "glimpses": 2}),
}
RUNNING_TEXT = ("language-model", "masked-lm")
# all data of a run are in one folder
FOLDERS = ("classify-clip", "classify-image", "glimpse")
# generate-image refuses every change, and agent reads no examples
OTHERS = {"agent", "generate-image"}
