"""EncoderClassifier: padding is absent, weights are those of the last layer, trained parameters have gradients."""

import pytest
import torch

from regard.attn.call import Need
from regard.layers.text_pooling import POOLINGS
from regard.models.bert import BERT
from regard.models.transfer.classifier import EncoderClassifier
from regard.models.transfer.text_encoder import TextEncoder

TOKENS, LENGTHS = torch.randint(19, (3, 7)), torch.tensor([7, 2, 5])


def classifier(pooling: str = "mean", frozen: int = 0) -> EncoderClassifier:
    torch.manual_seed(0)
    bert = BERT(19, width=6, layers=2, heads=2, longest=11, dropout=0.1)
    return EncoderClassifier(TextEncoder(bert, frozen=frozen), 5, pooling=pooling)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_batch_is_its_texts(pooling: str) -> None:
    model = classifier(pooling).eval()
    together = model.classify(TOKENS, LENGTHS, Need(weights=True))
    torch.testing.assert_close(together.weights.sum(-1), torch.ones(3, 2))
    torch.testing.assert_close(model(TOKENS, LENGTHS), together.logits)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model.classify(TOKENS[row : row + 1, :length], LENGTHS[row : row + 1], Need(weights=True))
        torch.testing.assert_close(together.logits[row : row + 1], alone.logits, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(together.weights[row : row + 1, :, :length], alone.weights, rtol=1e-5, atol=1e-6)
        assert not together.weights[row, :, length:].any()


@pytest.mark.parametrize("frozen", [0, 1, 3])
def test_every_trained_parameter_has_a_gradient(frozen: int) -> None:
    model = classifier(frozen=frozen).train()
    model(TOKENS, LENGTHS).square().sum().backward()
    for name, p in model.named_parameters():
        assert (p.grad is not None) == p.requires_grad, name
    assert model.embedding is model.encoder.bert.embedding
