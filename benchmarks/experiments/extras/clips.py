"""Clips in a batch and while they grow, and pictures of the attention to them."""

from pathlib import Path

import torch

from benchmarks.experiments.runner import TrainedRun
from regard.inference.predictor import labelled_recording
from regard.tasks.classify_clip.data import read_splits
from regard.tasks.classify_clip.predictor import ClipInput

_COMPARED = 24
# test clips that are drawn
_DRAWN = {"directions": "test:0", "meetings": "test:1", "signals": "test:3"}


@torch.no_grad()
def differences(run: TrainedRun) -> dict[str, float]:
    """The largest difference of a probability: in a batch from alone, and of a growing clip from the whole."""
    predictor = run.predictor
    clips = [ClipInput(clip) for clip in read_splits(run.config).test.clips[:_COMPARED]]
    together = predictor.model(*predictor.tensors(clips)).softmax(-1)
    alone = torch.cat([predictor.model(*predictor.tensors([clip])) for clip in clips]).softmax(-1)
    values = {"in batch": float((together - alone).abs().max())}
    if predictor.model.causal:
        values["growing"] = 0.0
        for clip in clips:
            x, _ = predictor.tensors([clip])
            growing = predictor.model.growing(x).softmax(-1)
            parts = torch.cat([predictor.model(x[:, :end]) for end in range(1, x.shape[1] + 1)]).softmax(-1)
            values["growing"] = max(values["growing"], float((growing - parts).abs().max()))
    return values


def draw(run: TrainedRun, path: Path) -> None:
    clip = run.predictor.read(_DRAWN[run.config.data])
    output, recording = labelled_recording(run.predictor, clip)
    run.predictor.draw(recording, clip, output, path)
