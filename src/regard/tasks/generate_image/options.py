"""The options of the task generate-image and of its model.  No torch here: a command line reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from regard.common.input_kind import InputKind
from regard.common.options.checks import CheckedOptions
from regard.common.options.fields import at_least, left_open, positive, random_seed, share
from regard.inference.evaluation import EXAMPLES
from regard.tasks.base import Budget, ModelOptions
from regard.tasks.shared.image_options import EvaluateImages, GatedOptions, LabelledImageConfig

# the classifiers that judge samples: for the choice of weights, and for `regard evaluate`
JUDGE, TEST_JUDGE = "judge.safetensors", "judge-test.safetensors"


@dataclass(frozen=True)
class SAGANOptions(GatedOptions):
    """A generator and a discriminator with self-attention."""

    model_class: ClassVar[str] = "regard.models.sagan:SelfAttentionGAN"

    attention: Literal["none", "quarter", "half", "whole"] = "whole"
    """The feature map that the attention block reads, in both networks: a quarter, half or all of the image's size."""
    width: int = at_least(1, 16)
    """Channels of the largest map; a map of half the size has twice as many, of a quarter four times as many."""
    noise: int = at_least(1, 64)
    """Random numbers per image."""
    faster: float = positive(8.0)
    """The learning rate of the discriminator, in multiples of --lr."""
    gate: str | None = None
    """The gate on every map of both networks, a name of `regard list gates`; if left out, none."""


@dataclass(frozen=True)
class PredictSamples(CheckedOptions):
    """Options of `regard predict` for generators of images."""

    count: int = at_least(1, 10)
    """Images per class."""
    seed: int | None = left_open("one more than the seed of the run", minimum=0, below=2**63)
    """The same seed samples the same images."""


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
    usage: ClassVar[str] = "predict {run} CLASS --picture samples.png"
    Evaluate: ClassVar[type] = EvaluateImages
    Predict: ClassVar[type] = PredictSamples

    size: int | None = None
    """Images are resized to this many pixels, wide and high, a multiple of 4; if left out, they must all have one such
    size."""

    model: SAGANOptions = left_open()
    """The generator and the discriminator."""
    keep: float = share(0.995)
    """The decay of the moving average of the generator's weights, which images are sampled with."""
    shift: int = at_least(0, 0)
    """Training images are shifted at random by up to this many pixels each way; samples are then shifted as well."""
    judge: int = at_least(1, 300)
    """Training steps of the classifier that recognises samples."""
    batch: int = at_least(2, 32)
    """Images per batch."""
    seed: int = random_seed(0)
    """Determines initial weights, the order of batches, samples, and which images are held out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size is not None and (self.size < 4 or self.size % 4):
            raise ValueError(f"size must be a multiple of 4, got {self.size}; try size={max(4, self.size // 4 * 4)}")

    @property
    def title(self) -> str:
        return f"a generator on {self.dataset_label}"

    def preparation_notice(self, folder: Path, new: bool) -> str:
        trains = new or not (folder / JUDGE).exists()
        return f"training the classifier that judges samples, {self.judge} steps" if trains else ""
