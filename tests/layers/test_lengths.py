"""Groups of similar length hold every sentence once, and encode as one batch does."""

import itertools

import pytest
import torch

from regard.layers.lengths import GROUP, length_groups
from regard.models import transformer
from regard.models.transformer import Transformer


def test_groups_hold_every_sentence_once() -> None:
    lengths = torch.randint(1, 30, (3 * GROUP + 5,))
    groups = length_groups(lengths, 30)
    assert len(groups) == 4
    assert torch.cat(groups).sort().values.tolist() == list(range(len(lengths)))
    for shorter, longer in itertools.pairwise(groups):
        assert int(lengths[shorter].max()) <= int(lengths[longer].min())


def test_groups_must_be_worth_it() -> None:
    assert len(length_groups(torch.full((64,), 9), 9)) == 1
    assert len(length_groups(torch.tensor([1, 9]), 9)) == 1


def test_encoding_in_groups_equals_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Transformer(23, 23, width=12, layers=2, heads=3).eval()
    source, lengths = torch.randint(1, 23, (40, 11)), torch.arange(40) % 11 + 1
    lengths[7] = 0
    with torch.no_grad():
        got = model.encode(source, lengths)
        monkeypatch.setattr(transformer, "length_groups", lambda lengths, longest: [torch.arange(len(lengths))])
        want = model.encode(source, lengths)
    is_token = torch.arange(11) < lengths.unsqueeze(-1)
    torch.testing.assert_close(got[is_token], want[is_token], rtol=1e-5, atol=1e-5)
    assert not got[~is_token].isnan().any()
