"""Runs of two steps, of every served task about texts but translation."""

import json
from pathlib import Path
from typing import Any

from tests.serve.conftest import LINES, trained

from regard.tasks.loading import LoadedRun, load_run

TEXT_RUNS = {
    "classify-text": "--train {}/texts.tsv --width 5 --hidden 6 --hops 2 --feed 7 --batch 64",
    "tag": "--train {}/columns.conll --embedding 5 --characters 4 --hidden 6 --batch 64",
    "match": "--train {}/sentences.tsv --embedding 5 --characters 4 --hidden 6 --batch 64",
    "answer": "--train {}/stories_train.txt --width 6 --hops 2 --restarts 2 --memory 8 --batch 16",
    "select-response": "--train {}/dialogues.tsv --embedding 5 --width 6 --levels 1 --filters 3 2 --turns 2 --words 4 "
    "--candidates 3 --batch 8",
    "respond": "--train {}/dialogues.tsv --tokens words --width 8 --heads 2 --layers 1 --turns 4 --words 9 --batch 64",
    "track": "--train {}/turns.tsv --embedding 5 --hidden 6 --batch 8",
    "read": "--train {}/questions.json --embedding 5 --characters 4 --hidden 6 --batch 256",
    "embed": "--train {}/pairs.tsv --tokens characters --width 8 --heads 2 --layers 1 --batch 16 --valid-pairs 5",
    "masked-lm": "--train {}/lines.txt --tokens characters --width 8 --heads 2 --layers 1 --segment 220 --batch 2 "
    "--valid-tokens 230 --valid-share 0.3",
    "language-model": "--train {}/lines.txt --width 8 --heads 2 --layers 1 --segment 24 --valid-tokens 30 --batch 3",
}


def text_for(task: str, text: str) -> str:
    """A text that the task reads."""
    if task == "match":
        return f"a {text}\tb {text[::-1]}"
    if task == "select-response":
        return f"a {text}\nb {text}\nc"
    if task == "respond":
        return f"a {text}\nb {text}"
    if task == "track":
        return f"a {text}\nfood?\n{text}"
    if task == "read":
        return f"It was {text or 'a'}.\nWhat was it?"
    if task == "answer":
        return f"Al went to {text or 'a'}.\nWhere is Al?"
    return f"{text[:1]}[MASK]{text[1:]}" if task == "masked-lm" else text


def text_run(task: str, folder: Path) -> LoadedRun:
    """Trains the task in this folder."""
    words = [line.replace(" ", " x ") for line in LINES]
    (folder / "texts.tsv").write_text("".join(f"{'good' if n % 3 else 'bad'}\t{w}\n" for n, w in enumerate(words)))
    (folder / "lines.txt").write_text("\n".join(words) + "\n")
    sentences = ("\n".join(f"{w} {'B-PLACE' if w in 'bd' else 'O'}" for w in line.split()) for line in words)
    (folder / "columns.conll").write_text("\n\n".join(sentences) + "\n")
    pairs = (f"{('same', 'other')[n % 2]}\t{w}\t{w[:: 1 - 2 * (n % 2)]}\n" for n, w in enumerate(words))
    (folder / "sentences.tsv").write_text("".join(pairs))
    stories = (f"1 Al went to {w[0]}.\n2 Bo went to {w[-1]}.\n3 Where is Al?\t{w[0]}\t1\n" for w in words)
    (folder / "stories_train.txt").write_text("".join(stories))
    passages = [{"context": f"{w}.", "qas": [_question(n, w)]} for n, w in enumerate(words)]
    (folder / "questions.json").write_text(json.dumps({"data": [{"paragraphs": passages}]}))
    (folder / "pairs.tsv").write_text("".join(f"{w}\t{w[::-1]}\n" for w in words))
    (folder / "dialogues.tsv").write_text("".join(f"{w}\t{w[0]} a\t{w[-1]}\n" for w in words))
    turns = (f"{n}\t1\tfood?\t{w}\tfood={w[0]}\n" for n, w in enumerate(words))
    (folder / "turns.tsv").write_text("dialogue\tturn\tsystem\tuser\tinform\n" + "".join(turns))
    run = trained(folder / task, task, f"{TEXT_RUNS[task].format(folder)} --steps 2")
    return load_run(run, "best", "cpu")


def _question(number: int, line: str) -> dict[str, Any]:
    return {"id": str(number), "question": "What is first?", "answers": [{"text": line[0], "answer_start": 0}]}
