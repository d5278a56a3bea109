"""One tiny run per task or more: the options of its training, inputs to predict, and the body of a request."""

import base64
import io
import json
from dataclasses import MISSING, fields
from importlib import import_module
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tests.data.images.test_labelled import idx
from tests.tasks.case import Case

from regard.data.audio.wav import Sound, wav_bytes


def _cases() -> dict[str, Case]:
    """{task: its case}, from tests/tasks/TASK/cases.py; a plus and a word behind the task tell further cases apart."""
    cases = {}
    for path in sorted(Path(__file__).parent.glob("*/cases.py")):
        cases |= import_module(f"tests.tasks.{path.parent.name}.cases").CASES
    return cases


CASES = _cases()


def required_options(model: type, encoder: Path = Path("/encoder")) -> dict[str, Any]:
    """The options that a model cannot be without: the folder of a pretrained encoder, or decoder."""
    folders = ("encoder", "decoder")
    return {item.name: encoder for item in fields(model) if item.name in folders and item.default is MISSING}


def task_of(name: str) -> str:
    """The task of a case."""
    return name.partition("+")[0]


def write_files(folder: Path) -> None:
    """All files that the cases name."""
    # tests.tasks.encoders imports transformers
    from tests.tasks.encoders import bert_folder, vit_encoder_folder

    bert_folder(folder / "bert")
    vit_encoder_folder(folder / "vit")
    write_data(folder)


def write_data(folder: Path) -> None:
    """An image of 8 by 8 random grey values, pairs of sentences, images with captions, and labelled texts."""
    draw = np.random.default_rng(0)
    for name in ("random", *range(12)):
        Image.fromarray(draw.integers(0, 255, (8, 8), np.uint8)).save(folder / f"{name}.png")
    write_images(folder / "digits", draw)
    write_clips(folder / "clips", draw)
    words = [" ".join(each) for each in permutations("abcde", 3)]
    (folder / "pairs.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in words))
    (folder / "captions.tsv").write_text("".join(f"{n}.png\t{('one', 'two')[n % 2]} {n % 3}\n" for n in range(12)))
    texts = [f"{label}\ta {label} film . it was {length}" for label in ("good", "bad") for length in words[:20]]
    (folder / "texts.txt").write_text("".join(f"{line}\n" for line in texts))
    trips = [["a", "trip", "to", *each.upper().split()[:length]] for length, each in enumerate(words[:24], 1)]
    rows = [
        [f"{word}\t{'O' if n < 3 else 'B-PLACE' if n == 3 else 'I-PLACE'}" for n, word in enumerate(trip)]
        for trip in trips
    ]
    (folder / "columns.tsv").write_text("".join("\n".join(row) + "\n\n" for row in rows))
    matched = [f"{('same', 'other')[n % 2]}\t{line}\t{line[:: 1 - 2 * (n % 2)]}\n" for n, line in enumerate(words)]
    turns = ["\t".join([line, f"{line[0]} {n}", line[::-1]]) for n, line in enumerate(words)]
    (folder / "dialogues.tsv").write_text("".join(f"{line}\n" for line in turns))
    (folder / "sentences.tsv").write_text("".join(matched))
    write_turns(folder / "turns.tsv")
    moves = [(each.split()[0], each.split()[2]) for each in words]
    rows_of_stories = [f"1 Al went to {a}.\n2 Bo went to {b}.\n3 Where is Al?\t{a}\t1\n" for a, b in moves]
    (folder / "stories_train.txt").write_text("".join(rows_of_stories))
    stories = [
        {"context": f"{line}. It was {line[0]}.", "qas": [question(line, n)]} for n, line in enumerate(words[:24])
    ]
    (folder / "questions.json").write_text(json.dumps({"data": [{"paragraphs": stories}]}))
    write_speech(folder / "speech.tsv", draw)
    (folder / "lines.txt").write_text("".join(f"{line[::-1]}\n" for line in texts))


def write_speech(path: Path, draw: np.random.Generator) -> None:
    """Twelve short noises as WAV files of several rates, beside a file of their transcripts."""
    lines = []
    for n in range(12):
        sound = Sound(draw.uniform(-0.5, 0.5, 800 + 160 * n).astype(np.float32), (8000, 11025, 16000)[n % 3])
        (path.parent / f"sound{n}.wav").write_bytes(wav_bytes(sound))
        lines.append(f"sound{n}.wav\t{'abc'[n % 3]}{'ab '[n % 2] * 2}c\n")
    path.write_text("".join(lines))


def write_images(folder: Path, draw: np.random.Generator) -> None:
    """Forty images of 8 by 8 random grey values to train on and twenty to test, of two classes, as IDX files."""
    folder.mkdir()
    for split, count in (("train", 40), ("t10k", 20)):
        idx(folder / f"{split}-images-idx3-ubyte", draw.integers(0, 255, (count, 8, 8), np.uint8))
        idx(folder / f"{split}-labels-idx1-ubyte", np.arange(count, dtype=np.uint8) % 2)


def write_clips(folder: Path, draw: np.random.Generator) -> None:
    """Forty clips of two classes, three to six frames of 8 by 8: random grey values that stay, or that blink; and forty
    signals beside them."""
    for n in range(40):
        name = ("still", "blink")[n % 2]
        frames = draw.integers(0, 255, (1, 8, 8), np.uint8).repeat(3 + n % 4, 0)
        frames[1::2] *= 1 - n % 2
        (folder / name).mkdir(parents=True, exist_ok=True)
        np.save(folder / name / f"{n}.npy", frames)
    samples = [[str(k * (1 - 2 * (n % 2))) for k in range(5 + n % 7)] for n in range(40)]
    rows = [",".join([("up", "down")[n % 2], *values]) for n, values in enumerate(samples)]
    folder.with_name("signals.csv").write_text("\n".join(rows))


def write_turns(path: Path) -> None:
    """Dialogues of three turns: a table, the food that is not offered, and the area."""
    rows = [
        f"{n}\t1\t\ta table\t\t\n{n}\t2\tfood? {a}\tno, {b}\tfood={b}\tphone\n{n}\t3\tarea?\t{c}\tarea={c}\t\n"
        for n, (a, b, c) in enumerate(permutations("abcde", 3))
    ]
    path.write_text("dialogue\tturn\tsystem\tuser\tinform\trequest\n" + "".join(rows))


def question(line: str, number: int) -> dict[str, Any]:
    """A question about a line of three letters, in the layout of SQuAD."""
    answer = {"text": line[2], "answer_start": 2}
    return {"id": str(number), "question": f"what follows {line[0]} ?", "answers": [answer]}


def with_paths(arguments: str, folder: Path) -> list[str]:
    """The arguments with the paths of files for their names."""
    paths = {
        "BERT": "bert",
        "VIT": "vit",
        "IMAGE": "random.png",
        "SOUND": "sound7.wav",
        "SPEECH": "speech.tsv",
        "DIGITS": "digits",
        "CLIPS": "clips",
        "SIGNALS": "signals.csv",
        "PAIRS": "pairs.tsv",
        "CAPTIONS": "captions.tsv",
        "TEXTS": "texts.txt",
        "COLUMNS": "columns.tsv",
        "LINES": "lines.txt",
        "SENTENCES": "sentences.tsv",
        "DIALOGUES": "dialogues.tsv",
        "TURNS": "turns.tsv",
        "STORIES": "stories_train.txt",
        "QUESTIONS": "questions.json",
    }
    return [str(folder / paths[word]) if word in paths else word for word in arguments.split()]


def request_body(kind: str, given: str) -> dict[str, str]:
    """The body of a request about one input."""
    if kind == "text":
        return {"text": given}
    data = io.BytesIO(Path(given).read_bytes()).getvalue()
    return {kind: base64.b64encode(data).decode()}
