"""recorded: record() around one pass without gradients, its errors as sentences for a user."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from regard.recording.recording import Recording
from regard.recording.run import check_not_empty, recorded


def test_no_gradients_and_some_layers() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 7, batch_first=True), 2).eval()
    with recorded(model, ["layers.1*"]) as recording:
        out = model(torch.randn(1, 5, 6))
    assert not out.requires_grad
    assert recording.names == ("layers.1.self_attn",)
    check_not_empty(recording, Path("run"))


def test_a_recording_without_maps_is_an_error_and_no_warning() -> None:
    model = nn.Sequential(nn.Linear(2, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with recorded(model) as recording:
            model(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="nothing in run attended, so there is nothing to show; name another one"):
        check_not_empty(recording, Path("run"))
    with pytest.raises(ValueError, match="none of a, b in run attended"):
        check_not_empty(Recording(), Path("run"), ["a", "b"])


def test_maps_that_do_not_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError("the budget of 2 GB is too small")

    monkeypatch.setattr("regard.recording.run.record", full)
    sentence = "the budget of 2 GB is too small; a shorter text, a smaller image or --layers needs less memory"
    with pytest.raises(ValueError, match=sentence), recorded(nn.Linear(2, 3)):
        pass
