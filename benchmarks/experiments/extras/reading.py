"""XQuAD: questions in the layout of SQuAD, read and compared with the file."""

import gzip
import json
from pathlib import Path

from benchmarks.experiments.experiment import Inputs
from benchmarks.result import Row, Table
from benchmarks.table import Bound
from benchmarks.training import Say
from regard.data.questions.squad import read_questions
from regard.tasks.read.data import split_questions


def xquad(inputs: Inputs, runs: Path, say: Say) -> tuple[list[Row], list[Table]]:
    """Counts answers that are not the characters at their offset, or begin or end inside a word."""
    if inputs.data is None:
        raise ValueError("xquad needs --data, a file in the layout of SQuAD")
    path = inputs.data
    content = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
    entries = {
        entry["id"]: (paragraph["context"], entry)
        for article in content["data"]
        for paragraph in article["paragraphs"]
        for entry in paragraph["qas"]
    }
    questions = read_questions(path).questions
    off = missing = 0
    for question in questions:
        context, entry = entries[question.id]
        right = {(answer["text"], answer["answer_start"]) for answer in entry["answers"]}
        read = {(answer.text, answer.start) for answer in question.answers}
        missing += read != right or question.passage != context or question.question != entry["question"]
        off += sum(question.passage[answer.start : answer.end] != answer.text for answer in question.answers)
    worded = split_questions(questions, 0)
    off_words = sum(
        question.passage[slice(*each.passage.place(*each.span))] not in {answer.text for answer in question.answers}
        for question, each in zip(questions, worded, strict=True)
        if each.span is not None
    )
    inside = sum(each.span is None for each in worded)
    count = len(questions)
    return [
        Row("xquad, questions read", count, f"of {len(entries):,}", Bound("least", len(entries)), digits=0),
        Row("xquad, questions that differ from the file", missing, "", Bound("most", 0), digits=0),
        Row("xquad, answers off by a character", off, "", Bound("most", 0), digits=0),
        Row("xquad, answers of words off by a character", off_words, "", Bound("most", 0), digits=0),
        Row("xquad, answers that begin or end inside a word", inside, f"of {count:,}", digits=0),
    ], []
