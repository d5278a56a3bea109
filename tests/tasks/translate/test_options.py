"""Translate: options that are checked, filled in by what suits the data, and written to JSON and back."""

import dataclasses
import json
from pathlib import Path
from typing import Any, get_args

import pytest

from regard.common.dataclass_json import dataclass_from_json
from regard.data.embedded import EMBEDDED
from regard.layers.rnn.cells import CELLS
from regard.metrics.text import SCORES, Cut
from regard.models import TRANSLATORS
from regard.models.seq2seq import DECODERS, Seq2Seq
from regard.models.transformer import NORMS, POSITIONS, Transformer
from regard.tasks.base import choices
from regard.tasks.translate.model import build
from regard.tasks.translate.options import Translate

A, B, C = Path("a.tsv"), Path("b.tsv"), Path("c.tsv")

WRONG: dict[str, tuple[type[Exception], dict[str, Any], str]] = {
    "unknown data": (
        ValueError,
        {"data": "date"},
        "unknown data 'date'; did you mean 'dates'? known are: dates, reverse, pronounce",
    ),
    "unknown model": (ValueError, {"model": "rnn"}, "unknown model 'rnn'; known are: seq2seq, transformer"),
    "unknown decoder": (ValueError, {"decoder": "luong-fed"}, "unknown decoder 'luong-fed'; did you mean"),
    "a file that is a string": (TypeError, {"train": "a.tsv"}, "train must be a tuple .*, got 'a.tsv'; write"),
    "data and files": (ValueError, {"data": "dates", "train": (A,)}, "data='dates' and train=a.tsv exclude each other"),
    "valid alone": (ValueError, {"valid": (A,)}, "valid=a.tsv belongs to files of your own; give train as well"),
    "test alone": (ValueError, {"test": (A, B)}, "test=a.tsv b.tsv belongs to files of your own; give train as well"),
    "three files": (
        ValueError,
        {"train": (A, B, C)},
        "train must be one .tsv file or two text files, got 3; join them first",
    ),
    "cell of a transformer": (
        ValueError,
        {"model": "transformer", "cell": "gru"},
        "cell='gru' belongs to model='seq2seq', not to 'transformer'; leave it out or choose the other model",
    ),
    "heads of seq2seq": (ValueError, {"heads": 2}, "heads=2 belongs to model='transformer', not to 'seq2seq'"),
    "a decoder as attention": (
        ValueError,
        {"attention": "luong"},
        "attention='luong' is a decoder, whose attention is 'general'; give decoder='luong' and leave attention out",
    ),
    "no attention": (ValueError, {"attention": "none"}, "attention='none' is written decoder='fixed'"),
    "heads of none": (
        ValueError,
        {"attention": "dot,additive"},
        "attention='dot,additive' names one a head, and a seq2seq has no heads; name one, or take model='transformer'",
    ),
    "attention of none": (
        ValueError,
        {"decoder": "fixed", "attention": "dot"},
        "attention='dot' has no place in decoder='fixed', which does not attend; leave one out",
    ),
    "no width": (ValueError, {"width": 0}, "width must be 1 or more, got 0; leave it out for a value that suits"),
    "no bleu": (
        ValueError,
        {"data": "dates", "bleu": "char"},
        "bleu='char' says how BLEU cuts text, and dates are scored by exact; leave it out, or take metric='bleu'",
    ),
    "no lines": (ValueError, {"valid_lines": -1}, "valid_lines must be 1 or more, got -1"),
    "no words": (ValueError, {"vocabulary": 0}, "vocabulary must be 1 or more, got 0"),
    "all dropped": (ValueError, {"dropout": 1.0}, "dropout must be 0 or more and below 1, got 1.0; try dropout=0.1"),
    "smoothed away": (ValueError, {"smoothing": -0.1}, "smoothing must be 0 or more and below 1, got -0.1"),
    "negative seed": (ValueError, {"seed": -3}, "seed must be 0 or more, got -3; try seed=0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told(name: str) -> None:
    error, options, said = WRONG[name]
    with pytest.raises(error, match=said.replace("?", r"\?")):
        Translate(**options)


def test_words_are_those_of_the_rooms_below() -> None:
    """Written out in the options, so that they are read without torch; the same all the same."""
    known = choices(Translate)
    assert set(known) == {"data", "tokens", "model", "decoder", "cell", "norm", "positions", "metric", "bleu"}
    assert set(known["data"]) == set(EMBEDDED)
    assert set(known["model"]) == set(TRANSLATORS)
    assert set(known["decoder"]) == set(DECODERS)
    assert set(known["cell"]) == set(CELLS)
    assert set(known["norm"]) == set(NORMS)
    assert set(known["positions"]) == set(POSITIONS)
    assert set(known["metric"]) == {*SCORES, "nll"}
    assert known["bleu"] == get_args(Cut)
    from regard.data.text.tokenizer import Kind

    assert known["tokens"] == get_args(Kind)


@pytest.mark.parametrize("kind", Translate.SUITS)
def test_what_is_left_open_suits_the_data(kind: str) -> None:
    task = Translate(train=(A,)) if kind == "files" else Translate(data=kind)
    assert task.kind == kind
    names = ("width", "hidden", "dropout", "smoothing", "batch", "metric")
    assert set(Translate.SUITS[kind]) == set(names)
    for name in names:
        assert task.choice(name) == Translate.SUITS[kind][name]
    given = dataclasses.replace(task, width=7, dropout=0.0, metric="nll")
    assert (given.choice("width"), given.choice("dropout"), given.choice("metric")) == (7, 0.0, "nll")


def test_dates_where_nothing_is_chosen() -> None:
    assert Translate().kind == "dates"


@pytest.mark.parametrize(
    "task",
    [
        Translate(),
        Translate(train=(A, B), valid=(C,), seed=3, attention="entmax", dropout=0.0),
        Translate(data="reverse", model="transformer", heads=2, norm="post", attention="dot,entmax"),
    ],
    ids=str,
)
def test_there_and_back_through_json(task: Translate) -> None:
    told = json.loads(json.dumps(dataclasses.asdict(task), default=str))
    assert dataclass_from_json(Translate, told) == task
    assert hash(dataclass_from_json(Translate, told)) == hash(task)


def test_told_by_an_earlier_or_later_version() -> None:
    assert dataclass_from_json(Translate, {"data": "reverse"}) == Translate(data="reverse")
    with pytest.raises(ValueError, match="does not know: colour, size; install the version that trained it"):
        dataclass_from_json(Translate, {"data": "reverse", "size": 3, "colour": "red"})


def test_much_text_takes_long(tmp_path: Path) -> None:
    files = tmp_path / "a.en", tmp_path / "a.de"
    task = Translate(train=files)
    assert task.ahead(tmp_path, True) == "", "what is not there is told when it is read"
    for path, size in zip(files, (2_000_000, 999_999), strict=True):
        path.write_bytes(bytes(size))
    assert task.ahead(tmp_path, True) == "reading a.en and a.de, 3 megabytes, and cutting them into tokens"
    assert Translate(train=files[1:]).ahead(tmp_path, True) == Translate().ahead(tmp_path, True) == ""


def test_paths_may_be_a_list_of_text() -> None:
    assert Translate(train=["a.tsv"]) == Translate(train=(A,))


def test_a_model_as_the_task_describes_it() -> None:
    model = build(Translate(data="reverse", layers=2, cell="lstm", decoder="luong", attention="dot"), 11, 13, False)
    assert isinstance(model, Seq2Seq)
    assert model.encoder.rnn.num_layers == model.decoder.stack.rnn.num_layers == 2
    assert (model.source.num_embeddings, model.target.num_embeddings, model.target.embedding_dim) == (11, 13, 64)
    assert model.source is not model.target
    task = Translate(
        data="reverse", model="transformer", width=12, heads=3, layers=2, positions="learned", max_length=9
    )
    model = build(task, 11, 11, True)
    assert isinstance(model, Transformer)
    assert len(model.encoder) == len(model.decoder) == 2
    assert model.encoder[0].feed.inner.out_features == 24
    assert model.source is model.target
    assert model.longest == 20
    three = build(dataclasses.replace(task, attention="dot,entmax,window"), 11, 11, True)
    assert len(three.encoder[0].attention.attention) == 3
    with pytest.raises(ValueError, match="attention must be one, or one for each of 3 heads, got 2"):
        build(dataclasses.replace(task, attention="dot,entmax"), 11, 11, True)
