"""The options of the task generate-image and of its model.  No torch here: a command line reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.common.input_kind import InputKind
from regard.common.options.checks import check_at_least, check_choices, check_positive, check_seed, check_share
from regard.common.options.fields import left_open
from regard.inference.evaluation import EXAMPLES
from regard.tasks.base import Budget, LabelledImageConfig, ModelOptions
from regard.tasks.shared.image_options import EvaluateImages, gate_factory, leave_out_none

if TYPE_CHECKING:
    from regard.models.sagan import SelfAttentionGAN

# the number of the feature map that the attention block reads
MAPS: dict[str, int | None] = {"none": None, "quarter": 0, "half": 1, "whole": 2}
# the classifiers that judge samples: for the choice of weights, and for `regard evaluate`
JUDGE, TEST_JUDGE = "judge.safetensors", "judge-test.safetensors"


@dataclass(frozen=True)
class SAGANOptions(ModelOptions):
    """A generator and a discriminator with self-attention."""

    attention: Literal["none", "quarter", "half", "whole"] = "whole"
    """The feature map that the attention block reads, in both networks: a quarter, half or all of the image's size."""
    width: int = 16
    """Channels of the largest map; a map of half the size has twice as many, of a quarter four times as many."""
    noise: int = 64
    """Random numbers per image."""
    faster: float = 8.0
    """The learning rate of the discriminator, in multiples of --lr."""
    gate: str | None = None
    """The gate on every map of both networks, a name of `regard list gates`; if left out, none."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_at_least(self, 1, {"width": 32, "noise": 32})
        if not self.faster > 0:
            raise ValueError(f"faster must be positive, got {self.faster}; try faster=8")
        leave_out_none(self)

    def build(self, size: int, channels: int, classes: int) -> SelfAttentionGAN:
        from regard.models.sagan import SelfAttentionGAN

        return SelfAttentionGAN(
            size,
            channels,
            classes,
            noise=self.noise,
            width=self.width,
            place=MAPS[self.attention],
            discriminator_lr_ratio=self.faster,
            gate=gate_factory(self.gate),
        )


@dataclass(frozen=True)
class PredictSamples:
    """Options of `regard predict` for generators of images."""

    count: int = 10
    """Images per class."""
    seed: int | None = left_open("one more than the seed of the run")
    """The same seed samples the same images."""

    def __post_init__(self) -> None:
        check_positive(self, "count")
        check_seed(self)


@dataclass(frozen=True)
class GenerateImage(LabelledImageConfig):
    """Generate images of a class, by a generator and a discriminator with self-attention (SAGAN)."""

    name: ClassVar[str] = "generate-image"
    task_class: ClassVar[str] = "regard.tasks.generate_image.task:GenerateImageTask"
    summary: ClassVar[str] = "generate images of a class (GAN): folders of images, IDX files, or handwritten digits"
    input_kind: ClassVar[InputKind] = InputKind.CLASS
    budgets: ClassVar[dict[str, Budget]] = {"digits": Budget(minutes=12.0), "files": Budget(minutes=240.0)}
    # a generator that always makes the same image would be recognised; its distance from real ones shows the fault
    metrics: ClassVar[dict[str, bool]] = {"distance": False, "recognised": True, "spread": True, "real spread": True}
    models: ClassVar[dict[str, type[ModelOptions]]] = {"sagan": SAGANOptions}
    varies: ClassVar[str] = "attention"
    varies_help: ClassVar[str] = "The map that the attention block reads: none, quarter, half, whole."
    run_files: ClassVar[tuple[str, ...]] = ("images.json", EXAMPLES, JUDGE, TEST_JUDGE)
    # two players that answer each other need short memories and steady steps
    training: ClassVar[dict[str, Any]] = {
        "lr": 2.5e-4,
        "betas": (0.0, 0.9),
        "schedule": "constant",
        "warmup": 0,
        "clip": None,
    }
    Evaluate: ClassVar[type] = EvaluateImages
    Predict: ClassVar[type] = PredictSamples

    size: int | None = None
    """Images are resized to this many pixels, wide and high, a multiple of 4; if left out, they must all have one such
    size."""

    model: SAGANOptions = left_open()
    """The generator and the discriminator."""
    keep: float = 0.995
    """The decay of the moving average of the generator's weights, which images are sampled with."""
    shift: int = 0
    """Training images are shifted at random by up to this many pixels each way; samples are then shifted as well."""
    judge: int = 300
    """Training steps of the classifier that recognises samples."""
    batch: int = 32
    """Images per batch."""
    seed: int = 0
    """Determines initial weights, the order of batches, samples, and which images are held out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size is not None and (self.size < 4 or self.size % 4):
            raise ValueError(f"size must be a multiple of 4, got {self.size}; try size={max(4, self.size // 4 * 4)}")
        check_at_least(self, 1, {"judge": 32})
        if self.batch < 2:
            raise ValueError(f"batch must be 2 or more: one image has no spread, got {self.batch}; try batch=32")
        check_at_least(self, 0, {"shift": 0, "seed": 0})
        check_share(self, {"keep": 0.995})

    @property
    def title(self) -> str:
        return f"a generator on {self.dataset_label}"

    def next_command(self, run: str) -> str:
        return f"regard predict {run} CLASS --picture samples.png"

    def preparation_notice(self, folder: Path, new: bool) -> str:
        trains = new or not (folder / JUDGE).exists()
        return f"training the classifier that judges samples, {self.judge} steps" if trains else ""
