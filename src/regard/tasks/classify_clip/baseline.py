"""The baseline of every evaluation: a network that sees one frame of a clip, any frame, or one sample of a signal."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.clips.labelled import Clip, Clips
from regard.models.convnet import ConvNet
from regard.tasks.classify_clip.data import ClipFacts
from regard.tasks.shared.classification import load_baseline

# frames per step, steps at most, passes over the clips at most, and the learning rate
_BATCH, _STEPS, _EPOCHS, _RATE = 64, 400, 20, 2e-3
_WIDTH, _HIDDEN = 8, 32
# frames per forward pass
_CHUNK = 512


def fit_single_frame(clips: Clips, facts: ClipFacts, seed: int) -> nn.Module:
    """The network after some passes over the clips, one frame of each per pass; the same for the same clips."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _build(facts)
        draw = np.random.default_rng(seed)
        batches = -(-len(clips) // _BATCH)
        steps = min(_STEPS, _EPOCHS * batches)
        optimizer = torch.optim.AdamW(model.parameters(), _RATE)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=steps + 1)
        order = np.empty(0, np.int64)
        for _ in range(steps):
            order = order if len(order) else draw.permutation(len(clips))
            rows, order = order[:_BATCH], order[_BATCH:]
            frames = [clips.clips[n][(at := int(draw.integers(len(clips.clips[n])))) : at + 1] for n in rows.tolist()]
            loss = F.cross_entropy(model(_frames(frames, facts)), torch.from_numpy(clips.labels[rows]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def read_single_frame(folder: Path, facts: ClipFacts) -> nn.Module:
    """The network that was trained when the run began."""
    return load_baseline(_build(facts), folder)


@torch.no_grad()
def single_frame_accuracy(model: nn.Module, clips: Clips, facts: ClipFacts) -> float:
    """The share of frames, all those of a clip counting as much as one clip, whose class is recognised, in percent."""
    frames, labels, weights = [], [], []
    for clip, label in zip(clips.clips, clips.labels.tolist(), strict=True):
        frames += [clip[n : n + 1] for n in range(len(clip))]
        labels += [label] * len(clip)
        weights += [1 / len(clip)] * len(clip)
    right: list[NDArray[np.bool_]] = []
    for start in range(0, len(frames), _CHUNK):
        logits = model(_frames(frames[start : start + _CHUNK], facts))
        right.append(logits.argmax(-1).numpy() == np.array(labels[start : start + _CHUNK]))
    return 100.0 * float(np.average(np.concatenate(right), weights=weights))


def _frames(frames: Sequence[Clip], facts: ClipFacts) -> Tensor:  # "1 …" each -> "n c h w" or "n c"
    return torch.cat([facts.tensor(frame) for frame in frames])


def _build(facts: ClipFacts) -> nn.Module:
    if facts.size is not None:
        return ConvNet(facts.channels, len(facts.classes), width=_WIDTH, depths=(1, 1), stem_stride=2, dropout=0.0)
    hidden = nn.Linear(facts.channels, _HIDDEN)
    return nn.Sequential(
        hidden, nn.ReLU(), nn.Linear(_HIDDEN, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, len(facts.classes))
    )
