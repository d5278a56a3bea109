"""How a task is trained. No torch here: the command line reads this file to print its help."""

from dataclasses import dataclass, fields
from typing import Literal

from regard.common.suggestions import known

SCHEDULES = ("constant", "inverse-sqrt", "cosine", "linear", "plateau")
# those that must know how many steps they go over
PLANNED = ("cosine", "linear")
# what ends a training
ENDS = ("steps", "epochs", "minutes")


@dataclass(frozen=True)
class TrainingConfig:
    """Every choice of a training. Of steps, epochs and minutes at least one is given; the first reached ends it."""

    steps: int | None = None
    """End after this many steps (updates of the weights)."""
    epochs: float | None = None
    """End after this many passes through the training data; an epoch counts as many batches as the first one has."""
    minutes: float | None = None
    """End after this much time on the clock, validation included, counted over resumes."""

    lr: float = 1e-3
    """The peak of the learning rate."""
    schedule: Literal["constant", "inverse-sqrt", "cosine", "linear", "plateau"] = "inverse-sqrt"
    """How the learning rate goes on after the warm-up; cosine and linear end near zero and need steps or epochs."""
    warmup: int = 400
    """Steps in which the learning rate rises to its peak."""
    plateau_factor: float | None = None
    """With schedule plateau: what the learning rate is multiplied by when validation no longer improves (0.5)."""
    plateau_patience: int | None = None
    """With schedule plateau: validations without improvement before that happens (2)."""
    betas: tuple[float, float] = (0.9, 0.98)
    """How long AdamW remembers gradients and their squares."""
    weight_decay: float = 0.0
    """AdamW's pull of matrices towards zero; vectors (biases, norms) are left alone."""
    clip: float | None = 1.0
    """Gradients are shortened to this global norm; None leaves them as they are."""
    accumulate: int = 1
    """Batches in one step: a larger batch than fits in memory, exactly."""

    validate_every: int = 500
    """Steps between validations; the end of training always validates."""
    save_every: int = 500
    """Steps between checkpoints; every validation saves one as well."""
    log_every: int = 50
    """Steps between lines of progress."""
    patience: int | None = None
    """End after this many validations in a row without improvement; None never does."""
    average: int = 0
    """At the end average the weights of this many last validations, and keep them if they score better; 0 does not."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 computes in half the bits where the processor has units for it, and is very slow where it has none."""
    threads: int | None = None
    """Threads of the processor; None times 1, 2, 4, … up to all on a real batch and takes the fewest of the fast."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to train; auto takes a GPU if there is one."""
    parallel: Literal["replicate", "shard"] = "replicate"
    """Under torchrun: every process holds the whole model (replicate), or its share of it (shard, FSDP2)."""
    tensorboard: bool = False
    """Write the metrics for TensorBoard as well."""

    def __post_init__(self) -> None:
        if all(getattr(self, name) is None for name in ENDS):
            raise ValueError("steps, epochs and minutes are all None, so training would never end; try steps=10000")
        for name in ("steps", "epochs", "minutes", "lr", "clip", "plateau_factor"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value}; try {name}={_examples()[name]}")
            # no gradient is longer than a clip without end: that is a way to say none
            if value == float("inf") and name != "clip":
                raise ValueError(f"{name} must be a finite number, got inf; try {name}={_examples()[name]}")
        for name in (
            "accumulate",
            "validate_every",
            "save_every",
            "log_every",
            "patience",
            "threads",
            "plateau_patience",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}; try {name}={_examples()[name]}")
        for name in ("warmup", "weight_decay", "average"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}; try {name}=0")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be at least 0 and below 1, got {self.betas}; try betas=(0.9, 0.98)")
        for name, names in (
            ("schedule", SCHEDULES),
            ("precision", ("float32", "bfloat16")),
            ("device", ("auto", "cpu", "cuda", "mps")),
            ("parallel", ("replicate", "shard")),
        ):
            known(name, getattr(self, name), names)
        if self.schedule == "inverse-sqrt" and self.warmup == 0:
            raise ValueError(
                "warmup=0 with schedule='inverse-sqrt' would fall from the first step on; "
                "give warmup=400, or take schedule='constant'"
            )
        if self.schedule in PLANNED and self.steps is None and self.epochs is None:
            raise ValueError(
                f"schedule {self.schedule!r} must know how many steps it goes over, and minutes={self.minutes} does "
                "not say it; give steps or epochs as well, or take schedule='inverse-sqrt'"
            )
        if self.schedule != "plateau":
            for name in ("plateau_factor", "plateau_patience"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name}={getattr(self, name)} means nothing to schedule {self.schedule!r}; "
                        f"take schedule='plateau' or leave {name} out"
                    )
        elif self.plateau_factor is not None and self.plateau_factor >= 1:
            raise ValueError(f"plateau_factor must be below 1, got {self.plateau_factor}; try plateau_factor=0.5")


def lasting(minutes: float) -> str:
    """So many minutes, in words."""
    return f"{minutes:g} minute{'' if minutes == 1 else 's'}"


def _examples() -> dict[str, object]:
    """A value that works, for the end of a sentence."""
    good = {field.name: field.default for field in fields(TrainingConfig) if field.default is not None}
    return good | {
        "steps": 10000,
        "epochs": 10,
        "minutes": 30,
        "patience": 5,
        "threads": 1,
        "plateau_factor": 0.5,
        "plateau_patience": 2,
    }
