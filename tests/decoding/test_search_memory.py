"""The memory of a search is that of the keys and values that hypotheses need, not of the storage kept ahead."""

import pytest
import torch

from regard.decoding.beam import BYTES_PER_TOKEN, beam
from regard.models.transformer import Transformer


@pytest.mark.parametrize("native", [True, False])
def test_caches_are_counted_as_long_as_they_are(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    needed: list[int] = []
    monkeypatch.setattr("regard.common.memory.check_fits", lambda size, *_: needed.append(size))
    model = Transformer(13, 11, width=8, layers=2, heads=2, feed=7).eval()
    if not native:
        monkeypatch.setattr("regard.models.transformer.native_step", lambda *_: None)
    with torch.no_grad():
        state = model.init_state(torch.ones(3, 5, dtype=torch.long), torch.tensor([5, 4, 2]))
    beam(model, state, bos=1, eos=2, limits=torch.tensor([4, 4, 4]), size=5)
    # keys and values of 3 sentences in 2 layers at the first step, for two steps of 5 hypotheses
    assert needed == [3 * 5 * 6 * BYTES_PER_TOKEN + 2 * 5 * (2 * 3 * 2 * 8 * 4)]
