"""Translate: options that are checked, filled in by what suits the data, and written to JSON and back."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from tests.for_each import for_each

from regard.common.options.checks import literal_choices
from regard.data.embedded import EMBEDDED
from regard.data.text.tokenizer import Kind
from regard.layers.position_choices import POSITIONS
from regard.layers.rnn.cells import CELLS
from regard.metrics.text import SCORES, Cut
from regard.models import TRANSLATORS
from regard.models.conv.seq2seq import POSITIONS as CONV_POSITIONS
from regard.models.memory.ntm import CONTROLLERS, DECODER_INPUTS
from regard.models.seq2seq import DECODERS, Seq2Seq
from regard.models.transformer import NORMS, Transformer
from regard.tasks.translate.options import (
    ConvOptions,
    EvaluateTranslations,
    NTMOptions,
    Seq2SeqOptions,
    TransformerOptions,
    Translate,
)

A, B, C = Path("a.tsv"), Path("b.tsv"), Path("c.tsv")

WRONG: dict[str, tuple[type[Exception], dict[str, Any], str]] = {
    "unknown data": (
        ValueError,
        {"data": "date"},
        "unknown data 'date'; did you mean 'dates'? known are: dates, reverse, copy, repeat-copy, pronounce",
    ),
    "unknown model": (ValueError, {"model": "rnn"}, "unknown model 'rnn'; known are: seq2seq, transformer, conv, ntm"),
    "unknown decoder": (ValueError, {"decoder": "luong-fed"}, "unknown decoder 'luong-fed'; did you mean"),
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
        "attention='dot,additive' names one per head, and a seq2seq has no heads; name one, or take model=",
    ),
    "heads of conv": (
        ValueError,
        {"model": "conv", "attention": "dot,additive"},
        "attention='dot,additive' names one per head, and a conv has no heads; name one, or take model=",
    ),
    "kernel of seq2seq": (ValueError, {"kernel": 5}, "kernel=5 belongs to model='conv', not to 'seq2seq'"),
    "attention of none": (
        ValueError,
        {"decoder": "fixed", "attention": "dot"},
        "attention='dot' has no place in decoder='fixed', which does not attend; leave one out",
    ),
    "no bleu": (
        ValueError,
        {"data": "dates", "bleu": "char"},
        "bleu='char' says how BLEU cuts text, and dates are scored by exact; leave it out, or take metric='bleu'",
    ),
    "attention of a memory": (
        ValueError,
        {"model": "ntm", "attention": "dot"},
        "attention='dot' has no place in model='ntm', which reads its memory; leave it out, or take model='seq2seq'",
    ),
    "locations of seq2seq": (ValueError, {"locations": 9}, "locations=9 belongs to model='ntm', not to 'seq2seq'"),
    "longest of dates": (
        ValueError,
        {"longest": 9},
        "longest=9 belongs to data='copy' or data='repeat-copy', not to dates; leave it out",
    ),
    "repeats of copy": (
        ValueError,
        {"data": "copy", "repeats": 3},
        "repeats=3 belongs to data='repeat-copy', not to copy; leave it out",
    ),
    "many repeats": (
        ValueError,
        {"data": "repeat-copy", "repeats": 10},
        "repeats must be from 1 to 9, which is a digit, got 10; try repeats=5",
    ),
    "all dropped": (
        ValueError,
        {"dropout": 1.0},
        "dropout must be 0 or more and below 1, got 1.0; leave it out",
    ),
}


@for_each("name", WRONG)
def test_what_is_wrong_is_told(name: str) -> None:
    error, options, said = WRONG[name]
    with pytest.raises(error, match=said.replace("?", r"\?")):
        Translate.of(**options)


def test_choices_are_those_of_the_packages_below() -> None:
    """Written out in the options, so that they are read without torch."""
    own, seq2seq, transformer = map(literal_choices, (Translate, Seq2SeqOptions, TransformerOptions))
    assert set(own) == {"data", "tokens", "metric", "bleu"}
    assert set(own["data"]) == set(EMBEDDED)
    # a translation that is written needs its case
    assert {*own["tokens"], "folded-words"} == set(get_args(Kind))
    assert set(own["metric"]) == {*SCORES, "nll"} == set(Translate.metrics)
    assert own["bleu"] == get_args(Cut)
    assert set(seq2seq["decoder"]) == set(DECODERS)
    assert set(seq2seq["cell"]) == set(CELLS)
    assert set(transformer["norm"]) == set(NORMS)
    assert set(transformer["positions"]) == set(POSITIONS)
    assert set(literal_choices(ConvOptions)["positions"]) == set(CONV_POSITIONS)
    assert set(literal_choices(NTMOptions)["controller"]) == set(CONTROLLERS)
    assert literal_choices(NTMOptions)["decoder_input"] == DECODER_INPUTS
    assert set(Translate.models) == set(TRANSLATORS)


@for_each("dataset", Translate.defaults)
def test_open_options_suit_the_data(dataset: str) -> None:
    task = Translate(train=(A,)) if dataset == "files" else Translate(data=dataset)
    assert task.dataset == dataset
    sizes = task.sizes
    names = ("width", "hidden", "dropout", "smoothing", "batch", "metric", *sizes)
    assert set(Translate.defaults[dataset]) - {"tokens"} == set(names)
    for name in names:
        owner = task if hasattr(task, name) else task.model
        assert getattr(owner, name) == Translate.defaults[dataset][name]
    given = task.with_options(width=7, dropout=0.0, metric="nll")
    assert (given.model.width, given.model.dropout, given.metric) == (7, 0.0, "nll")


def test_nothing_is_open_in_a_record() -> None:
    """Only what has no value stays null: files that are not given, and what the data decides."""
    embedded, files = Translate(), Translate.of(train=(A,), model="transformer")
    null = {name for name, value in embedded.to_json().items() if value is None}
    assert null == {"bleu", "longest", "repeats"}, "dates are not scored by BLEU and have one size"
    assert Translate(data="pronounce").tokens is None, "each side has tokens of its own"
    assert {name for name, value in files.to_json().items() if value is None} == {
        *("bleu", "data", "longest", "repeats")
    }
    assert None not in embedded.to_json()["model"].values()
    assert None not in files.to_json()["model"].values()
    fixed = Translate.of(decoder="fixed").to_json()["model"]
    assert {name for name, value in fixed.items() if value is None} == {"attention"}
    assert files.to_json()["model"] == {
        "name": "transformer",
        "attention": "scaled-dot",
        "width": 256,
        "layers": 3,
        "dropout": 0.2,
        "heads": 4,
        "feed": 512,
        "norm": "pre",
        "positions": "sinusoidal",
    }


def test_dates_where_nothing_is_chosen() -> None:
    assert Translate().dataset == Translate().data == "dates"


@pytest.mark.parametrize(
    "task",
    [
        Translate(),
        Translate.of(train=(A, B), valid=(C,), seed=3, attention="entmax", dropout=0.0),
        Translate.of(data="reverse", model="transformer", heads=2, norm="post", attention="dot,entmax"),
        Translate.of(decoder="fixed"),
    ],
    ids=str,
)
def test_there_and_back_through_json(task: Translate) -> None:
    again = Translate.from_json(json.loads(json.dumps(task.to_json())))
    assert again == task
    assert hash(again) == hash(task)


def test_options_of_an_earlier_or_later_version() -> None:
    assert Translate.from_json({"data": "reverse"}) == Translate(data="reverse")
    with pytest.raises(ValueError, match="does not know: colour, size; install the version that trained it"):
        Translate.from_json({"data": "reverse", "size": 3, "colour": "red"})
    with pytest.raises(ValueError, match="does not know: colour; install"):
        Translate.from_json({"model": {"name": "seq2seq", "colour": "red"}})
    with pytest.raises(ValueError, match="batch is 'many', which is of a wrong type"):
        Translate.from_json({"batch": "many"})


def test_a_model_is_given_by_its_options() -> None:
    task = Translate(data="dates", model=TransformerOptions(heads=2))
    assert task == Translate.of(data="dates", model="transformer", heads=2)
    assert task.model_name == "transformer"
    with pytest.raises(
        TypeError, match="model must be the options of a model, Seq2SeqOptions or TransformerOptions or ConvOptions"
    ):
        Translate(model="transformer")
    with pytest.raises(TypeError, match="translate has no option colour='red'"):
        Translate.of(colour="red")


def test_a_mistyped_split_is_named() -> None:
    with pytest.raises(ValueError, match="unknown split 'tset'; did you mean 'test'"):
        EvaluateTranslations(split="tset")


def test_variants_of_a_comparison() -> None:
    variants = Translate().variants(["additive", "none"])
    assert variants["additive"] == Translate.of(attention="additive")
    assert variants["none"] == Translate.of(decoder="fixed")
    heads = Translate.of(model="transformer", heads=2).variants(["dot+entmax"])
    assert heads["dot+entmax"].model.attention == "dot,entmax"
    nothing = "--decoder fixed does not attend, so there is nothing to compare; name it none in --attention, which is"
    with pytest.raises(ValueError, match=nothing):
        Translate.of(decoder="fixed").variants(["additive"])
    with pytest.raises(ValueError, match="a transformer cannot do without attention; leave none out"):
        Translate.of(model="transformer").variants(["none"])
    with pytest.raises(ValueError, match="an NTM reads its memory and has no attention to compare; leave --model out"):
        Translate.of(model="ntm").variants(["dot"])


def test_much_text_takes_long(tmp_path: Path) -> None:
    files = tmp_path / "a.en", tmp_path / "a.de"
    task = Translate(train=files)
    assert task.preparation_notice(tmp_path, True) == "", "a missing file is reported when it is read"
    for path, size in zip(files, (2_000_000, 999_999), strict=True):
        path.write_bytes(bytes(size))
    notice = "reading a.en and a.de, 3 megabytes, and splitting them into tokens"
    assert task.preparation_notice(tmp_path, True) == notice
    assert Translate(train=files[1:]).preparation_notice(tmp_path, True) == ""
    assert Translate().preparation_notice(tmp_path, True) == ""


def test_paths_may_be_a_list_of_text() -> None:
    assert Translate(train=["a.tsv"]) == Translate(train=(A,))


def build(task: Translate, source: int, target: int, shared: bool) -> Any:
    return task.model.build(source, target, shared=shared, max_length=task.max_length)


def test_a_model_as_the_task_describes_it() -> None:
    task = Translate.of(data="reverse", layers=2, cell="lstm", decoder="luong", attention="dot")
    model = build(task, 11, 13, False)
    assert model.encoder.rnn.num_layers == model.decoder.stack.rnn.num_layers == 2
    assert (model.source.num_embeddings, model.target.num_embeddings, model.target.embedding_dim) == (11, 13, 64)
    assert model.source is not model.target
    task = Translate.of(
        data="reverse", model="transformer", width=12, heads=3, layers=2, positions="learned", max_length=9
    )
    model = build(task, 11, 11, True)
    assert len(model.encoder) == len(model.decoder) == 2
    assert model.encoder[0].feed.inner.out_features == 24
    assert model.source is model.target
    assert model.longest == 20
    three = build(task.with_options(attention="dot,entmax,window"), 11, 11, True)
    assert len(three.encoder[0].attention.attention) == 3
    with pytest.raises(ValueError, match="attention must be one layer, or one per head for 3 heads, got 2"):
        build(task.with_options(attention="dot,entmax"), 11, 11, True)


@pytest.mark.parametrize(("model", "attention"), [("seq2seq", "additive"), ("transformer", "scaled-dot")])
def test_the_resolved_attention_is_that_of_the_paper(model: str, attention: str) -> None:
    """The same parameters, in the same order, as a model that is told none."""
    task = Translate.of(model=model, width=8)
    assert task.model.attention == attention
    torch.manual_seed(1)
    resolved = build(task, 11, 11, False)
    torch.manual_seed(1)
    sizes = {"width": 8, "hidden": 128} if model == "seq2seq" else {"width": 8, "layers": 3, "heads": 4, "feed": 16}
    plain = {"seq2seq": Seq2Seq, "transformer": Transformer}[model](11, 11, dropout=0.0, **sizes)
    assert resolved.state_dict().keys() == plain.state_dict().keys()
    source, lengths = torch.tensor([[5, 6, 2], [5, 2, 0]]), torch.tensor([3, 2])
    assert torch.equal(resolved(source, lengths, source), plain(source, lengths, source))
