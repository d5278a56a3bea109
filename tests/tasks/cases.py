"""One tiny run per task or more: the options of its training, inputs to predict, and the body of a request."""

import base64
import io
import json
from dataclasses import MISSING, fields
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from tests.data.images.test_labelled import idx

from regard.data.audio.wav import Sound, wav_bytes


class Case(NamedTuple):
    """`options` of `regard train` for a run of a moment, `inputs` of `regard predict`, two values to compare (none if
    nothing can be compared), targets for `Predictor.loss`, and further arguments of `regard predict`; names in capitals
    stand for paths of `write_files`. Small files are read faster than embedded data sets are made."""

    options: str
    inputs: tuple[str, ...]
    varied: tuple[str, ...]
    targets: tuple[Any, ...]
    predict: str = ""


# by the name of the task; a plus and a word behind it tell further cases of a task apart
CASES: dict[str, Case] = {
    "classify-text+encoder": Case(
        "--train TEXTS --encoder BERT --freeze embeddings --pooling first --batch 64",
        ("a good film", "bad. It was long."),
        ("dot", "entmax"),
        ("good", "bad"),
    ),
    "tag+encoder": Case(
        "--train COLUMNS --encoder BERT --freeze embeddings --batch 64",
        ("a trip to B C", "to D"),
        ("dot", "entmax"),
        ("O O O B-PLACE I-PLACE", "O B-PLACE"),
    ),
    "caption+encoder": Case(
        "--train CAPTIONS --tokens words --encoder VIT --freeze 1 --width 5 --hidden 7 --batch 64 --valid-lines 3",
        ("IMAGE",) * 2,
        ("soft", "hard"),
        ("one", "two"),
    ),
    "translate": Case(
        "--train PAIRS --tokens words --width 6 --hidden 8 --batch 64 --valid-lines 3",
        ("a b c", "c a"),
        ("dot", "none"),
        ("a", "b"),
    ),
    "translate+conv": Case(
        "--train PAIRS --tokens words --model conv --layers 1 --width 6 --hidden 8 --batch 64 --valid-lines 3",
        ("a b c", "c a"),
        ("dot", "additive"),
        ("a", "b"),
    ),
    "translate+ntm": Case(
        "--train PAIRS --tokens words --model ntm --locations 7 --memory-width 3 --width 6 --hidden 8 --batch 64 "
        "--valid-lines 3",
        ("a b c", "c a"),
        (),
        ("a", "b"),
    ),
    "caption+conv": Case(
        "--train CAPTIONS --tokens words --model conv --layers 1 --gate se --annotation 6 --channels 4 "
        "--width 6 --hidden 7 --batch 64 --valid-lines 3",
        ("IMAGE",) * 2,
        ("dot", "hard"),
        ("one", "two"),
    ),
    "classify-image": Case(
        "--train DIGITS --gate se --width 4 --depths 1 --batch 16", ("IMAGE",) * 2, ("none", "se"), ("0", "1")
    ),
    "classify-clip": Case(
        "--train CLIPS --width 4 --depths 1 --batch 16", ("test:0", "test:1"), ("paper", "dot"), ("still", "blink")
    ),
    "classify-clip+transformer": Case(
        "--train SIGNALS --model transformer --causal --width 4 --heads 2 --layers 1 --batch 16",
        ("test:0", "test:1"),
        ("scaled-dot", "entmax"),
        ("up", "down"),
    ),
    "glimpse": Case(
        "--train DIGITS --what 4 --where 4 --glimpse 6 --hidden 6 --glimpses 2 --gate simam --batch 16",
        ("IMAGE",) * 2,
        ("1", "2"),
        ("0", "1"),
    ),
    "caption": Case(
        "--train CAPTIONS --tokens words --annotation 6 --channels 4 --width 5 --hidden 7 --batch 64 --valid-lines 3",
        ("IMAGE",) * 2,
        ("soft", "hard"),
        ("one", "two"),
    ),
    "transcribe": Case(
        "--train SPEECH --width 6 --hidden 8 --mels 13 --rate 8000 --masks 1 --batch 400 --valid-lines 3",
        ("SOUND",) * 2,
        ("additive", "location-sensitive"),
        ("ab", "c a"),
    ),
    "transcribe+online": Case(
        "--train SPEECH --online --cell lstm --width 6 --hidden 8 --mels 13 --rate 8000 --batch 400 --valid-lines 3",
        ("SOUND",) * 2,
        ("monotonic", "mocha"),
        ("ab", "c a"),
    ),
    "transcribe+transformer": Case(
        "--train SPEECH --model transformer --width 8 --heads 2 --layers 1 --mels 13 --rate 8000 --batch 400 "
        "--valid-lines 3",
        ("SOUND",) * 2,
        ("scaled-dot", "entmax"),
        ("ab", "c a"),
    ),
    "generate-image": Case(
        "--train DIGITS --gate eca --width 2 --noise 3 --judge 1 --batch 16",
        ("0", "1"),
        ("none", "half"),
        ("IMAGE",) * 2,
        "--picture OUT",
    ),
    "tag": Case(
        "--train COLUMNS --embedding 5 --characters 4 --hidden 6 --batch 64",
        ("a trip to B C", "to D"),
        ("dot", "none"),
        ("O O O B-PLACE I-PLACE", "O B-PLACE"),
    ),
    "read": Case(
        "--train QUESTIONS --embedding 5 --characters 4 --hidden 6 --batch 256",
        ("A b went to c. It was d.\nWhere did b go?", "b went to a\tWho went?"),
        ("dot", "none"),
        ("c", "b"),
    ),
    "classify-text": Case(
        "--train TEXTS --width 5 --hidden 6 --hops 2 --feed 7 --batch 64",
        ("a good film", "bad. It was long."),
        ("dot", "entmax"),
        ("good", "bad"),
    ),
    "match": Case(
        "--train SENTENCES --embedding 5 --characters 4 --hidden 6 --batch 64",
        ("a b c\ta c", "c a\tb b"),
        ("dot", "additive"),
        ("same", "other"),
    ),
    "answer": Case(
        "--train STORIES --width 6 --hops 2 --restarts 2 --memory 8 --batch 16",
        ("Al went to a.\nBo went to b.\nWhere is Al?", "Bo went to c. Al went to b. Where is Bo?"),
        ("dot", "additive"),
        ("a", "c"),
    ),
    "select-response": Case(
        "--train DIALOGUES --embedding 5 --width 6 --levels 1 --filters 3 2 --turns 2 --words 4 --candidates 3 "
        "--batch 8",
        ("a b\tc\nc a\nb", "c\nb a\nc c"),
        ("dot", "additive"),
        ("b", "c c"),
    ),
    "respond": Case(
        "--train DIALOGUES --tokens words --model hierarchical --width 6 --hidden 8 --turns 2 --words 4 --batch 64",
        ("a b\tc", "c"),
        ("dot", "additive"),
        ("b", "c c"),
    ),
    "respond+flat": Case(
        "--train DIALOGUES --tokens words --model flat --history bidirectional --width 8 --heads 2 --layers 1 "
        "--turns 2 --words 4 --batch 64",
        ("a b\tc", "c"),
        ("dot", "entmax"),
        ("b", "c c"),
    ),
    "track": Case(
        "--train TURNS --embedding 5 --hidden 6 --batch 8",
        ("a table\nfood?\nb food", "area?\tc\td, no wait, e"),
        ("dot", "additive"),
        ("food=b; phone", "area=d"),
    ),
    "track+recurrent": Case(
        "--train TURNS --embedding 5 --hidden 6 --context recurrent --batch 8",
        ("a table\nfood?\nb food", "area?\tc\td, no wait, e"),
        ("dot", "additive"),
        ("food=b; phone", "area=d"),
    ),
    "track+encoder": Case(
        "--train TURNS --encoder BERT --freeze embeddings --hidden 6 --context attention --batch 8",
        ("a table\nfood?\nb food", "area?\tc\td, no wait, e"),
        ("dot", "entmax"),
        ("food=b; phone", "area=d"),
    ),
    "language-model": Case(
        "--train LINES --model transformer-xl --memory 9 --width 8 --heads 2 --layers 1 --segment 24 --batch 3",
        ("a good film", "bad"),
        ("dot", "entmax"),
        (" it was", " a"),
        "--tokens 8",
    ),
    "masked-lm": Case(
        "--train LINES --tokens characters --width 8 --heads 2 --layers 1 --segment 24 --batch 3 --valid-tokens 60",
        ("a g[MASK]od film", "ba[MASK] [MASK]"),
        ("dot", "entmax"),
        ("o", "d a"),
    ),
    "embed": Case(
        "--train PAIRS --tokens characters --width 8 --heads 2 --layers 1 --batch 16 --valid-pairs 5",
        ("a b c", "c a"),
        ("dot", "entmax"),
        ("c b a", "a c"),
    ),
    "agent": Case(
        "--env pairs --memory additive --width 8 --batch 8 --segment 6 --passes 1 --minibatches 2 --valid-episodes 5",
        ("0", "3"),
        ("none", "additive"),
        ("1 0 2 3", "0 0"),
    ),
}


def required_options(model: type, encoder: Path = Path("/encoder")) -> dict[str, Any]:
    """The options that a model cannot be without: the folder of a pretrained encoder, or decoder."""
    folders = ("encoder", "decoder")
    return {item.name: encoder for item in fields(model) if item.name in folders and item.default is MISSING}


def task_of(name: str) -> str:
    """The task of a case."""
    return name.partition("+")[0]


def write_files(folder: Path) -> None:
    """An image of 8 by 8 random grey values, pairs of sentences, images with captions, and labelled texts."""
    # tests.tasks.encoders imports transformers
    from tests.tasks.encoders import bert_folder, vit_encoder_folder

    bert_folder(folder / "bert")
    vit_encoder_folder(folder / "vit")
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
