"""Every kind of model in every format, as `python -m benchmarks.export` compares them, with few texts and steps."""

import re
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from benchmarks.export import models
from benchmarks.export.__main__ import GUIDE, main, measure_released, section
from benchmarks.export.answers import Answer, own_answers
from benchmarks.export.comparison import TOLERANCE, Comparison, compare, num_distinct
from benchmarks.export.models import KINDS
from benchmarks.export.readers import READERS, GraphReader
from benchmarks.peers.exported_graphs import GraphFolder
from tests.tasks.pretrained.folders import marian_folder

from regard.export.graph_files import about_graphs
from regard.export.graphs import graphs_of
from regard.inference.predictor import Predictor

COUNT, STEPS = 9, 12
# the formats that trace a graph take seconds; the graphs of other models run untraced
TRACED = {
    "ONNX Runtime": (
        "Transformer, pre-norm, sinusoids",
        "GPT-2, learned positions",
        "encoder, mean",
        "classifier with an encoder",
    ),
    "torch.export": ("Transformer, post-norm, sinusoids", "masked language model", "encoder, maximum"),
}
_UNKNOWN = ("recurrent translator", "convolutional translator", "recurrent language model", "self-attentive classifier")
_NO_HEADS = ("masked language model", "classifier with an encoder", "classifier of BERT")
_CTRANSLATE2 = r": it has translators \(Transformer\), decoders \(GPT2\) and encoders without a head \(TextEmbedder"
REFUSED: dict[tuple[str, str], str] = {
    ("Llama", "CTranslate2"): _CTRANSLATE2 + ".*; train one of these",
    **{("Llama", name): "a Llama is not exported as a graph" for name in ("ONNX Runtime", "torch.export")},
    **{(kind, "CTranslate2"): _CTRANSLATE2 + ".*; train one of these" for kind in _UNKNOWN},
    **{(kind, "CTranslate2"): _CTRANSLATE2 + ".*; export it --to onnx" for kind in _NO_HEADS},
    **{(kind, name): "not exported as a graph" for kind in _UNKNOWN for name in ("ONNX Runtime", "torch.export")},
    **{(kind, "transformers"): "transformers has no class for a" for kind in _UNKNOWN},
    **{("Transformer, rotary positions", name): "positions are rotary" for name in READERS if name != "transformers"},
    ("Transformer, rotary positions", "transformers"): "positions='rotary' cannot be saved",
    ("Transformer, post-norm, learned positions", "transformers"): "norm='post' and learned positions cannot be saved",
    ("GPT-2, sinusoids", "transformers"): "positions='sinusoidal' cannot be saved",
    ("classifier with an encoder", "transformers"): "of the first token, and this classifier the mean",
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(models.SIZES, "layers", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the other libraries
        yield


@cache
def example(kind: str) -> tuple[Predictor[Any, Any], list[str], list[Answer]]:
    predictor = models.predictor(kind, STEPS)
    texts = models.inputs(predictor, COUNT)
    return predictor, texts, own_answers(predictor, texts)


def check(row: Comparison, kind: str, library: str) -> None:
    reason = REFUSED.get((kind, library))
    if reason is not None:
        assert re.search(reason, row.refusal)
        return
    assert not row.refusal
    assert row.equal == row.inputs == COUNT
    assert row.difference < TOLERANCE


@pytest.mark.parametrize("library", READERS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_library_computes_the_same(kind: str, library: str) -> None:
    if (kind, library) not in REFUSED and kind not in TRACED.get(library, KINDS):
        check_untraced(kind)
    else:
        check(compare(kind, library, *example(kind)), kind, library)


def check_untraced(kind: str) -> None:
    """The functions that are traced, run as they are."""
    predictor, texts, own = example(kind)
    parts = predictor.exportable()

    class Untraced(GraphReader):
        to = "none"

        def __init__(self) -> None:
            self.predictor, self.folder = predictor, Path()
            graphs = {graph.name: graph for graph in graphs_of(parts)}
            runs = {
                name: lambda module=graph.module, **given: _listed(module(**given)) for name, graph in graphs.items()
            }
            self.graphs = GraphFolder(runs, about_graphs(parts))

        def read(self, texts: Any) -> Any:
            return [list(answer.read) for answer in own]

    for answer, mine in zip(Untraced().answers(texts, own), own, strict=True):
        assert answer.written == mine.written
        assert (answer.scores - mine.scores).abs().max() < TOLERANCE


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def test_outputs_differ() -> None:
    """Equal outputs of different texts would show little; translators of few steps repeat tokens, with other log p."""
    for kind in KINDS:
        own = example(kind)[2]
        # two texts of one unknown word are equal
        assert len({tuple(answer.scores.tolist()) for answer in own}) >= COUNT - 1, kind
        if kind.startswith(("GPT-2", "encoder")):
            assert num_distinct(own) == COUNT


def test_released_models(tmp_path: Path) -> None:
    """transformers reads the folder itself; the pieces of sentencepiece have no file for other libraries."""
    marian = list(measure_released(marian_folder(tmp_path).folder, 5))
    assert [row.library for row in marian] == list(READERS)
    for row in marian:
        assert not row.refusal
        assert (row.equal, row.difference < TOLERANCE) == (5, True)


def test_the_command_prints_a_row_per_pair(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--models", "self-attentive classifier", "--inputs", "3"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(READERS) + 1
    assert "4 of 4 hold" in printed[-1]


def test_the_guide_has_the_table_of_the_result_file() -> None:
    assert section() in GUIDE.read_text(encoding="utf-8")
