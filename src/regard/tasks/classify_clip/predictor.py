"""ClipClassifier: the predictor of classify-clip: clips in, class probabilities out."""

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from regard.common.eval_mode import eval_mode
from regard.common.options.checks import check_top
from regard.common.wording import plural
from regard.data.clips import signal_files
from regard.data.clips.frame_files import read_clip
from regard.data.clips.labelled import Clip, Clips
from regard.inference.batches import similar_batches
from regard.inference.margins import ranking_margin
from regard.inference.predictor import Observe, Predictor
from regard.models.clips.clip_model import ClipModel
from regard.recording.recording import Recording
from regard.tasks.classify_clip.data import ClipFacts, ClipSplits, pad
from regard.tasks.classify_clip.maps import clip_maps
from regard.tasks.classify_clip.options import PredictClips
from regard.tasks.shared.ranked_classes import Ranking, class_number, percentages, ranked_classes
from regard.viz.plots.clip_strip import draw_strip
from regard.viz.plots.signal_curves import draw_signal

# clips per forward pass
_BATCH = 32
# classes that a summary names
_SUMMARY = 3
# an example of the run's own data, or a line of a file
_HELD_OUT = re.compile(r"(test|valid):(\d+)")
_LINE = re.compile(r"(.+\.(?:csv|tsv|ts)):(\d+)", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class ClipInput:
    """A clip in the size that the model reads, and its name: a path, or its number in a split."""

    clip: Clip
    name: str = ""


@dataclass(frozen=True)
class ClipClassification:
    """The classes of a clip and, if asked for, the likeliest class after every step."""

    classes: Ranking
    top: int = 1  # classes that are printed
    growing: Ranking | None = None  # one pair per step


class ClipClassifier(Predictor[ClipInput, ClipClassification]):
    """clip -> class probabilities; `splits` reads the clips of the run, for inputs such as test:3."""

    input_key: ClassVar[str] = "clip"

    model: ClipModel

    def __init__(self, model: ClipModel, facts: ClipFacts, splits: Callable[[], ClipSplits] | None = None) -> None:
        self.model, self.facts, self._splits = model, facts, splits

    @property
    def classes(self) -> list[str]:
        return list(self.facts.classes)

    # Inputs

    def read(self, argument: str) -> ClipInput:
        """The clip of a path, of a line of a file of signals (FILE:LINE), or of a split of the run (test:3)."""
        held_out = _HELD_OUT.fullmatch(argument)
        if held_out and self._splits is not None and not Path(argument).exists():
            return self._held_out(held_out[1], int(held_out[2]))
        if self.facts.size is None:
            return ClipInput(self._signal(argument), argument)
        mode, (height, width) = "L" if self.facts.channels == 1 else "RGB", self.facts.size
        path = Path(argument)
        if path.suffix.lower() in signal_files.SUFFIXES:
            raise ValueError(f"{path} holds signals, and this run reads pictures; name a folder of frames, or a GIF")
        clip = read_clip(path, size=(width, height), mode=mode)
        if clip.ndim == 2:
            raise ValueError(f"{path} holds a signal, and this run reads pictures; name a folder of frames, or a GIF")
        return ClipInput(clip, argument)

    def _held_out(self, split: str, number: int) -> ClipInput:
        assert self._splits is not None
        clips: Clips = getattr(self._splits(), split)
        if number >= len(clips):
            raise ValueError(
                f"{split}:{number} is behind the last of {len(clips):,} clips; name one up to {split}:{len(clips) - 1}"
            )
        return ClipInput(clips.clips[number], f"{split}:{number}")

    def _signal(self, argument: str) -> Clip:
        line = None if Path(argument).exists() else _LINE.fullmatch(argument)
        path = Path(line[1]) if line else Path(argument)
        if path.suffix.lower() not in signal_files.SUFFIXES:
            if path.suffix.lower() != ".npy":
                raise ValueError(
                    f"{path} is no signal, and this run reads signals; name a .csv, .tsv, .ts or .npy file"
                )
            signal: Clip = read_clip(path)
        else:
            signals = signal_files.read_signals(path, labelled=line is not None)
            if line is None and len(signals) > 1:
                raise ValueError(
                    f"{path} holds {len(signals):,} signals, and one is predicted at a time; name a labelled line of "
                    f"it, such as {path}:{signals[0].line}"
                )
            chosen = [each for each in signals if line is None or each.line == int(line[2])]
            if not chosen:
                raise ValueError(f"line {int(line[2]) if line else 0} of {path} holds no signal; name another line")
            signal = chosen[0].values
        if signal.ndim != 2 or signal.shape[1] != self.facts.channels:
            content = "pictures" if signal.ndim != 2 else plural(signal.shape[1], "channel")
            read = plural(self.facts.channels, "channel")
            raise ValueError(f"{path} has {content}, and this run reads signals of {read}; name another file")
        return signal

    def tensors(self, inputs: Sequence[ClipInput]) -> tuple[Tensor, Tensor]:  # -> "b t …", "b"
        """The clips as the model reads them, and their lengths."""
        x, lengths = pad([example.clip for example in inputs], self.facts)
        return x.to(self.device, self.dtype), lengths.to(self.device)

    # Outputs

    @torch.no_grad()
    def predict(
        self, inputs: Sequence[ClipInput], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[ClipClassification]:
        options = PredictClips() if options is None else options
        check_top(options, len(self.facts.classes))
        if options.growing and not self.model.causal:
            raise ValueError("--growing needs a model that reads no later frame; train one with --causal")
        outputs: list[ClipClassification] = []
        with eval_mode(self.model):
            with observe():
                for start in range(0, len(inputs), _BATCH):
                    logits = self.model(*self.tensors(inputs[start : start + _BATCH]))
                    outputs += [ClipClassification(self._ranked(row), options.top) for row in logits]
            if options.growing:
                outputs = [replace(each, growing=self._growing(of)) for each, of in zip(outputs, inputs, strict=True)]
        return outputs

    def _growing(self, example: ClipInput) -> Ranking:
        return [self._ranked(row)[0] for row in self.model.growing(self.tensors([example])[0])]

    def _ranked(self, logits: Tensor) -> Ranking:  # "k"
        return ranked_classes(self.facts.classes, logits.cpu().double().softmax(-1).numpy())

    def loss(self, inputs: Sequence[ClipInput], targets: Sequence[str | int]) -> Tensor:  # -> "b"
        """−log p of the class, given by its name or its number."""
        numbers = torch.tensor([class_number(target, self.facts.classes) for target in targets], device=self.device)
        with eval_mode(self.model):
            return F.cross_entropy(self.model(*self.tensors(inputs)).float(), numbers, reduction="none")

    @torch.no_grad()
    def probabilities(
        self, clips: Sequence[Clip], done: Callable[[int], object] | None = None
    ) -> NDArray[np.float64]:  # -> "n k"
        """p(class | clip), clips of similar length together; `done` is called with the number of clips so far."""
        rows = np.empty((len(clips), len(self.facts.classes)))
        with eval_mode(self.model):
            for index in similar_batches([*map(len, clips)], _BATCH, done):
                x, lengths = self.tensors([ClipInput(clips[n]) for n in index])
                rows[index] = self.model(x, lengths).cpu().double().softmax(-1).numpy()
        return rows

    @torch.no_grad()
    def evidence(self, clips: Clips) -> float | None:
        """The share of the attention over time on the interval of each clip, in percent, the mean over clips.

        Clips whose interval is empty do not count. None if the model does not attend to steps.
        """
        assert clips.intervals is not None
        shares = []
        with eval_mode(self.model):
            for index in similar_batches([*map(len, clips.clips)], _BATCH):
                weights = self.model.attend(*self.tensors([ClipInput(clips.clips[n]) for n in index])).weights
                if weights is None:
                    return None
                for row, (start, end) in zip(weights, clips.intervals[index].tolist(), strict=True):
                    if end > start:
                        shares.append(float(row[start:end].sum() / row.sum()))
        return 100.0 * float(np.mean(shares)) if shares else None

    def text(self, output: ClipClassification) -> str:
        text = "\t".join(percentages(output.classes, output.top))
        if output.growing is None:
            return text
        return text + "\t" + ", ".join(f"{n}: {each}" for n, each in enumerate(percentages(output.growing), 1))

    def summary(self, output: ClipClassification) -> str:
        return ", ".join(percentages(output.classes, _SUMMARY))

    def json(self, output: ClipClassification) -> dict[str, Any]:
        values: dict[str, Any] = {"classes": dict(output.classes)}
        if output.growing is not None:
            values["growing"] = [{"class": name, "probability": p} for name, p in output.growing]
        return values

    def margin(self, output: ClipClassification) -> float:
        return ranking_margin([probability for _, probability in output.classes], len(output.classes))

    def label(self, recording: Recording, example: ClipInput, output: ClipClassification) -> Recording:
        about = {"said": self.summary(output), "keys": "samples" if self.facts.size is None else "frames"}
        return replace(recording, about={**recording.about, "clip": example.name, **about})

    def draw(self, recording: Recording, example: ClipInput, output: ClipClassification, path: Path) -> Path:
        """A strip of frames, or the curve of a signal, with the attention over time and places.

        A model whose attention is over neither, such as a gate over channels, has the figure of its recording.
        """
        maps = clip_maps(recording, self.model, len(example.clip), self.facts.size)
        title = f"{example.name or 'clip'}: {self.summary(output)}"
        notes = [] if maps.verified else ["UNVERIFIED: the model may have computed with other weights"]
        if self.facts.size is None and maps.steps is not None:
            return draw_signal(example.clip, maps.steps, path, title, notes=notes)
        if maps.steps is None and maps.places is None:
            return super().draw(recording, example, output, path)
        return draw_strip(example.clip, path, title, steps=maps.steps, places=maps.places, notes=notes)

    def blank(self) -> ClipInput:
        """Two steps without content."""
        size, channels = self.facts.size, self.facts.channels
        return ClipInput(
            np.zeros((2, channels), np.float32) if size is None else np.zeros((2, *size, channels), np.uint8)
        )
