"""EncoderVectors: every distinct text is read once, and has the states that it has alone."""

import pytest
import torch
from torch import Tensor

from regard.models.bert import BERT
from regard.models.matching.response_selector import EncoderVectors, TokenTexts
from regard.models.transfer.text_encoder import TextEncoder


def test_repeated_texts_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    vectors = EncoderVectors(TextEncoder(BERT(11, width=6, layers=1, heads=2, longest=8), frozen=2)).eval()
    tokens = torch.tensor([[3, 4, 5], [7, 8, 0], [3, 4, 5], [0, 0, 0], [7, 8, 0], [3, 4, 0]])
    lengths = torch.tensor([3, 2, 3, 0, 2, 2])
    rows: list[int] = []
    read = vectors.encoder.forward

    def counted(tokens: Tensor, lengths: Tensor) -> Tensor:
        rows.append(len(tokens))
        return read(tokens, lengths)

    monkeypatch.setattr(vectors.encoder, "forward", counted)
    states = vectors(TokenTexts(tokens, lengths))
    assert rows == [4]
    for n in (0, 1, 2, 4, 5):
        count = int(lengths[n])
        alone = read(tokens[n : n + 1, :count], lengths[n : n + 1])
        torch.testing.assert_close(states[n, :count], alone[0])
