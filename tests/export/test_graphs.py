"""ONNX Runtime and torch run exported graphs with any batch and length, and compute the same as regard."""

from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.peers.exported_graphs import GRAPHS, generate, onnx_graph, torch_graph, translate
from tests.export import predictors
from tests.export.predictors import LINES

from regard.export import export
from regard.export.graphs import graphs_of
from regard.inference.predictor import Predictor
from regard.tasks.language_model.options import GenerateText


@pytest.mark.parametrize("to", GRAPHS)
def test_language_models(to: str, tmp_path: Path) -> None:
    predictor = predictors.language_model(layers=1)
    export(predictor.exportable(), tmp_path / "out", to)
    suffix, load = GRAPHS[to]
    decoder = load(tmp_path / f"out/decoder{suffix}")
    for output in predictor.predict(LINES[:3], GenerateText(tokens=5, temperature=0)):
        tokens = generate(decoder, list(output.encoded.tokens), 5, (1, 2, 4))
        assert tuple(tokens) == output.continuations[0].tokens
    # padding before a text changes nothing
    prompt = torch.tensor([[5, 6, 7], [0, 6, 7]])
    inputs = {"input_ids": prompt, "attention_mask": (prompt > 0).long()}
    past, none = torch.zeros(1, 2, 2, 0, 4), torch.ones(2, 0, dtype=torch.long)
    logits, *_ = decoder(**inputs, past_mask=none, past_keys=past, past_values=past)
    torch.testing.assert_close(logits[1, 1:], predictor.model(torch.tensor([[6, 7]]))[0], rtol=0, atol=1e-4)


def test_translators(tmp_path: Path) -> None:
    predictor = predictors.translator(norm="post", layers=1)
    export(predictor.exportable(), tmp_path / "out", "onnx")
    source, step = (onnx_graph(tmp_path / f"out/{name}.onnx") for name in ("source", "step"))
    for line, (best, *_) in zip(LINES[:3], predictor.translate(LINES[:3]), strict=True):
        ids = [*predictor.vocabularies.source.encode([line])[0], 2]
        tokens, log_prob = translate(source, step, ids, len(best.with_eos), (1, 2, 4))
        assert tokens == list(best.with_eos)
        assert abs(log_prob - predictor.log_prob(line, best)) < 1e-4


def test_encoders(tmp_path: Path) -> None:
    predictor = predictors.embedder()
    export(predictor.exportable(), tmp_path / "out", "torch")
    encoder = torch_graph(tmp_path / "out/encoder.pt2")
    texts = [text.ids for text in predictor.encode(LINES)]
    longest = max(map(len, texts))
    ids = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
    mask = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in texts])
    (vectors,) = encoder(input_ids=ids, attention_mask=mask)
    expected = np.stack([output.vector for output in predictor.predict(LINES)])
    np.testing.assert_allclose(vectors.numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("pooling", ["mean", "first", "max"])
def test_graphs_have_the_logits_of_the_model(pooling: str) -> None:
    classifier, masked_lm = predictors.classifier(pooling), predictors.masked_lm()
    ids, lengths = torch.randint(4, 200, (3, 7)), torch.tensor([7, 4, 1])
    mask = (torch.arange(7) < lengths[:, None]).long()
    (graph,) = graphs_of(classifier.exportable())
    torch.testing.assert_close(graph.module(ids, mask), classifier.model(ids, lengths))
    (graph,) = graphs_of(masked_lm.exportable())
    torch.testing.assert_close(graph.module(ids, mask)[0], masked_lm.model(ids)[0])


def test_models_that_are_no_graph_are_refused(tmp_path: Path) -> None:
    refused: list[tuple[str, Predictor]] = [
        ("cannot express this GPT2: its positions are rotary", predictors.language_model(positions="rotary")),
        ("cannot express this GPT2: its heads attend by", predictors.language_model(attention="sparsemax")),
        ("positions are not added to the embeddings", predictors.translator(positions="none")),
        ("the memory of 8 tokens is not exported", predictors.language_model(memory=8, positions="none")),
    ]
    for reason, predictor in refused:
        with pytest.raises(ValueError, match=reason):
            export(predictor.exportable(), tmp_path / "none", "torch")
    assert not (tmp_path / "none").exists()
