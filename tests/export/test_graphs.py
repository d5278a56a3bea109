"""Graphs of models, before a format traces them; test_every_pair.py runs the files."""

import pytest
import torch
from tests.export import predictors

from regard.export.graphs import graphs_of


@pytest.mark.parametrize("pooling", ["mean", "first", "max"])
def test_graphs_have_the_logits_of_the_model(pooling: str) -> None:
    classifier, masked_lm = predictors.classifier(pooling), predictors.masked_lm()
    ids, lengths = torch.randint(4, 200, (3, 7)), torch.tensor([7, 4, 1])
    mask = (torch.arange(7) < lengths[:, None]).long()
    (graph,) = graphs_of(classifier.exportable())
    torch.testing.assert_close(graph.module(ids, mask), classifier.model(ids, lengths))
    (graph,) = graphs_of(masked_lm.exportable())
    torch.testing.assert_close(graph.module(ids, mask)[0], masked_lm.model(ids)[0])


def test_padding_before_a_text_changes_nothing() -> None:
    predictor = predictors.language_model()
    (graph,) = graphs_of(predictor.exportable())
    prompt = torch.tensor([[5, 6, 7], [0, 6, 7]])
    past, none = torch.zeros(2, 2, 2, 0, 4), torch.ones(2, 0, dtype=torch.long)
    logits, *_ = graph.module(prompt, (prompt > 0).long(), none, past, past)
    torch.testing.assert_close(logits[1, 1:], predictor.model(torch.tensor([[6, 7]]))[0], rtol=0, atol=1e-4)
