"""The options of the task classify-clip and of its models.  No torch here: a command line reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from regard.common.input_kind import InputKind
from regard.common.options.checks import CheckedOptions
from regard.common.options.construct import construct
from regard.common.options.fields import at_least, flag, left_open, option, random_seed, resolve, share
from regard.inference.evaluation import EXAMPLES
from regard.tasks.base import Budget, ModelOptions, TaskConfig
from regard.tasks.shared.image_options import EvaluateImages, GatedOptions

# frames that are encoded together
_WINDOW = 3


def _check_window(window: int, size: tuple[int, int] | None) -> None:
    """Raises for a window of frames where the clips are signals, of size None."""
    if size is None and window != _WINDOW:
        raise ValueError(f"window={window} counts frames, and signals have none; leave it out")


@dataclass(frozen=True)
class PredictClips(CheckedOptions):
    """Options of `regard predict` for clips."""

    top: int = at_least(1, 1)
    """Classes per clip, the likeliest first."""
    growing: bool = flag()
    """Print the class after every frame, of the clip that ends there; for models that are causal."""


@dataclass(frozen=True)
class ClipModelOptions(ModelOptions):
    """Options of a model that classifies clips."""

    causal: bool = flag()
    """Read no step behind the present one, so that a clip can be classified while it grows."""
    dropout: float = share(0.1)
    """The share of features that dropout sets to zero in training."""


@dataclass(frozen=True)
class ConvolvedOptions(ClipModelOptions, GatedOptions):
    """Options of models whose states come from residual blocks."""

    gate: str | None = None
    """The gate at the end of every residual block, a name of `regard list gates`; if left out, none."""
    width: int = at_least(1, 16)
    """Channels of the first stage; every later stage has twice as many as the one before."""
    depths: tuple[int, ...] | None = left_open("1 1 for pictures, 1 1 1 for signals")
    """Residual blocks of each stage; all stages but the first halve height and width, or the samples."""
    stem_stride: int | None = left_open("2 for pictures, 1 for signals", minimum=1)
    """Pixels, or samples, from one place of the first map to the next."""


@dataclass(frozen=True)
class FrameOptions(ConvolvedOptions):
    """Options of models that encode frames one by one."""

    part_classes: ClassVar[tuple[str, ...]] = (
        "regard.models.clips.encoders:FrameEncoder",
        "regard.models.clips.encoders:SignalEncoder",
    )

    window: int = at_least(1, _WINDOW)
    """Frames that are encoded together, as channels: a frame and its neighbours; 1 hides all motion. A signal has no
    frames."""

    def build(self, channels: int, size: tuple[int, int] | None, classes: int) -> Any:
        """`size` is the height and width of the frames, None for signals."""
        from regard.models.clips.encoders import FrameEncoder, SignalEncoder

        _check_window(self.window, size)
        encoder: Any = SignalEncoder if size is None else FrameEncoder
        return super().build(construct(encoder, self, channels), classes)


@dataclass(frozen=True)
class ClipAttentionOptions(FrameOptions):
    """Frames that are encoded one by one; learned queries attend to the places of each, and to the frames."""

    model_class: ClassVar[str] = "regard.models.clips.clip_attention:ClipAttention"

    attention: str = "paper"
    """That of Yang et al. (paper), or a mechanism by name (see `regard list`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_clip_attention(self.attention)


@dataclass(frozen=True)
class ClipConvNetOptions(ConvolvedOptions):
    """3-D convolutions over frames and places, or 1-D convolutions over a signal, with a gate in every block."""

    model_class: ClassVar[str] = "regard.models.clips.clip_convnet:ClipConvNet"

    def build(self, channels: int, size: tuple[int, int] | None, classes: int) -> Any:
        return super().build(channels, classes, is_signal=size is None)


@dataclass(frozen=True)
class ClipCellOptions(FrameOptions):
    """A recurrent gated attention cell that reads frame by frame and attends to the places of each."""

    model_class: ClassVar[str] = "regard.models.clips.clip_cell:ClipCell"

    heads: int = at_least(1, 8)
    """Heads of the cell."""
    head_width: int = at_least(1, 16)
    """The width of every head."""


@dataclass(frozen=True)
class SpaceTimeOptions(ClipModelOptions):
    """A Transformer with attention over time at every place, and over the places of every frame."""

    model_class: ClassVar[str] = "regard.models.clips.space_time:SpaceTimeEncoder"

    attention: str = "scaled-dot"
    """The attention of the heads, a mechanism by name (see `regard list`)."""
    width: int = at_least(1, 48)
    """The width of the states."""
    layers: int = at_least(1, 2)
    """Layers, each with attention over time and over places."""
    heads: int = at_least(1, 4, divides="width")
    """Heads per attention."""
    feed: int | None = left_open("four times the width", minimum=1)
    """The width of the feed-forward networks."""
    patch: int = at_least(1, 4)
    """Pixels of a patch, wide and high; or samples from one state of a signal to the next."""
    window: int = at_least(1, _WINDOW)
    """Frames that a patch holds, as channels: a frame and its neighbours. A signal has no frames."""

    def __post_init__(self) -> None:
        super().__post_init__()
        resolve(self, {"feed": 4 * self.width})

    def build(self, channels: int, size: tuple[int, int] | None, classes: int) -> Any:
        from regard.models.clips.clip_attention import ClipAttention

        _check_window(self.window, size)
        return ClipAttention(super().build(channels, size), classes, dropout=self.dropout)


def check_clip_attention(attention: str) -> None:
    """Raises for attentions that sample, or choose without a gradient."""
    if attention in ("hard", "hard-argmax"):
        raise ValueError(
            f"attention={attention!r} has no gradient that could teach it which frames to choose; try "
            "attention='gumbel', 'straight-through' or 'sparsemax'"
        )


@dataclass(frozen=True)
class ClassifyClip(TaskConfig):
    """Classify clips, sequences of pictures or signals: your own files, moving digits, or patterns in noise."""

    name: ClassVar[str] = "classify-clip"
    task_class: ClassVar[str] = "regard.tasks.classify_clip.task:ClassifyClipTask"
    summary: ClassVar[str] = "classify clips and signals: frames, GIF, arrays, CSV, or moving digits"
    unit: ClassVar[str] = "clips"
    input_kind: ClassVar[InputKind] = InputKind.CLIP
    embedded: ClassVar[str] = "directions"
    budgets: ClassVar[dict[str, Budget]] = {
        "directions": Budget(minutes=2.0),
        "meetings": Budget(minutes=5.0),
        "camouflage": Budget(minutes=10.0),
        "signals": Budget(minutes=2.0),
        "files": Budget(minutes=20.0),
    }
    # few clips are held out, and their likelihood shows smaller differences than their accuracy
    metrics: ClassVar[dict[str, bool]] = {"nll": False, "accuracy": True, "macro f1": True, "evidence": True}
    training: ClassVar[dict[str, Any]] = {"lr": 3e-3, "schedule": "cosine", "warmup": 50, "validate_every": 200}
    models: ClassVar[dict[str, type[ModelOptions]]] = {
        "frames": ClipAttentionOptions,
        "convnet": ClipConvNetOptions,
        "cell": ClipCellOptions,
        "transformer": SpaceTimeOptions,
    }
    varies: ClassVar[str] = "attention"
    varies_help: ClassVar[str] = (
        "Mechanisms by name, as `regard list` has them; paper is that of Yang et al., uniform the mean over frames."
    )
    run_files: ClassVar[tuple[str, ...]] = ("clips.json", EXAMPLES, "baseline.safetensors")
    vocabulary_files: ClassVar[tuple[str, ...]] = ("clips.json",)
    weight_fields: ClassVar[tuple[str, ...]] = ("size",)
    content: ClassVar[str] = "clips"
    file_options: ClassVar[tuple[str, ...]] = ("size",)
    usage: ClassVar[str] = "predict {run} CLIP"
    Evaluate: ClassVar[type] = EvaluateImages
    Predict: ClassVar[type] = PredictClips

    data: Literal["directions", "meetings", "camouflage", "signals"] | None = None
    """An embedded data set that needs no file: the direction of a moving digit, whether two digits met, which digit
    moves over dots like its own, or the pattern that a signal has somewhere in noise."""
    train: Path | None = option(None, metavar="PATH")
    """Your own clips: a folder per class, of folders of numbered frames, animated GIF or PNG, or .npy; or signals, one
    per line, in .csv or .tsv, with the class first, or in .ts."""
    size: int | None = at_least(1)
    """Frames are resized to this many pixels, wide and high; if left out, they must all have one size."""
    model: ClipModelOptions = left_open()
    """Frames that are encoded one by one and pooled by attention, convolutions over frames and places, a recurrent
    gated attention cell, or a Transformer over space and time."""
    smoothing: float = share(0.0)
    """Label smoothing: the share of the target's probability that is spread over all classes."""
    batch: int = at_least(1, 32)
    """Clips per batch."""
    seed: int = random_seed(0)
    """Determines initial weights, the order of batches, dropout, and which clips are held out."""

    @property
    def title(self) -> str:
        names = {"frames": "attention to frames", "convnet": "a network", "cell": "a gated cell"}
        return f"{names.get(self.model_name, 'a Transformer')} on {self.dataset_label}"

    def variants(self, values: Sequence[str]) -> dict[str, Self]:
        """The same with each of these attentions."""
        if not hasattr(self.model, "attention"):
            raise ValueError(
                f"--attention belongs to --model frames or transformer, not to {self.model_name}; choose one of them"
            )
        return super().variants(values)
