"""Translate: options that are checked, filled in by what suits the data, and written to JSON and back."""

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
from regard.models.universal.halting import HALTINGS
from regard.tasks.translate.options import (
    ConvOptions,
    EvaluateTranslations,
    NTMOptions,
    PointerOptions,
    Seq2SeqOptions,
    TransformerOptions,
    Translate,
    UniversalOptions,
)

A, B, C = Path("a.tsv"), Path("b.tsv"), Path("c.tsv")

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"valid": (A,)}, "valid=a.tsv belongs to files of your own; give train as well"),
    ({"test": (A, B)}, "test=a.tsv b.tsv belongs to files of your own; give train as well"),
    ({"train": (A, B, C)}, "train must be one .tsv file or two text files, got 3; join them first"),
    (
        {"model": "transformer", "cell": "gru"},
        "cell='gru' belongs to model='seq2seq', not to 'transformer'; leave it out or choose the other model",
    ),
    (
        {"attention": "luong"},
        "attention='luong' is a decoder, whose attention is 'general'; give decoder='luong' and leave attention out",
    ),
    ({"attention": "none"}, "attention='none' is written decoder='fixed'"),
    (
        {"attention": "dot,additive"},
        "attention='dot,additive' names one per head, and a seq2seq has no heads; name one, or take model=",
    ),
    ({"model": "conv", "attention": "dot,additive"}, "names one per head, and a conv has no heads; name one, or take"),
    (
        {"decoder": "fixed", "attention": "dot"},
        "attention='dot' has no place in decoder='fixed', which does not attend; leave one out",
    ),
    (
        {"data": "dates", "bleu": "char"},
        "bleu='char' says how BLEU cuts text, and dates are scored by exact; leave it out, or take metric='bleu'",
    ),
    (
        {"model": "ntm", "attention": "dot"},
        "attention='dot' has no place in model='ntm', which reads its memory; leave it out, or take model='seq2seq'",
    ),
    (
        {"model": "pointer", "data": "sort", "shared": False},
        "shared=False has no place in model='pointer', whose target is made of tokens of its source: they have one",
    ),
    (
        {"model": "pointer", "data": "sort", "smoothing": 0.1},
        "smoothing=0.1 spreads probability over the vocabulary, and model='pointer' has the tokens of the source alone",
    ),
    (
        {"model": "universal", "halting": "fixed", "ponder": 0.1},
        "ponder=0.1 has no place in halting='fixed', where all tokens take as many steps; leave it out, or take",
    ),
    ({"model": "pointer", "attention": "dot,entmax"}, "a pointer network has no heads; name one, or take"),
    (
        {"longest": 9},
        "longest=9 belongs to data='copy' or data='repeat-copy' or data='sort' or data='hull', not to dates",
    ),
    ({"data": "copy", "repeats": 3}, "repeats=3 belongs to data='repeat-copy', not to copy; leave it out"),
    ({"data": "repeat-copy", "repeats": 10}, "repeats must be from 1 to 9, which is a digit, got 10; try repeats=5"),
]


@for_each("options, message", WRONG)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
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
    assert set(literal_choices(PointerOptions)["cell"]) == set(CELLS)
    universal = literal_choices(UniversalOptions)
    assert set(universal["norm"]) == set(NORMS)
    assert universal["halting"] == HALTINGS
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
    assert null == {"bleu", "columns", "longest", "repeats"}, "dates are not scored by BLEU and have one size"
    assert Translate(data="pronounce").tokens is None, "each side has tokens of its own"
    assert {name for name, value in files.to_json().items() if value is None} == {
        *("bleu", "columns", "data", "longest", "repeats")
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


def build(task: Translate, source: int, target: int, shared: bool) -> Any:
    return task.model.build(source, target, shared=shared, max_length=task.max_length)


def test_a_plain_recurrent_network_reads_the_past_only() -> None:
    for name in DECODERS:
        both = Translate.of(decoder=name).model.bidirectional
        assert both == (name not in ("initial", "per-position"))
        assert Seq2Seq(7, 7, width=4, hidden=6, decoder=name).encoder.rnn.bidirectional == both
    network = Translate.of(data="reverse", decoder="per-position", cell="rnn", hidden=6)
    reads = torch.tril(torch.ones(5, 5, dtype=torch.bool))
    for task, expected in ((network, reads), (network.with_options(bidirectional=True), torch.ones_like(reads))):
        model = build(task, 7, 7, False).eval()
        first = torch.arange(1, 6).expand(5, 5)
        changed = first + torch.eye(5, dtype=torch.long)  # row i has another token at position i
        before, after = (model(x, torch.full((5,), 5), torch.ones_like(x)) for x in (first, changed))
        assert torch.equal((before != after).any(-1).T, expected), "output i of column j"


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
