"""The hyper-parameters of a training. No torch here: the command line reads this file to print its help."""

import reprlib
from dataclasses import dataclass, fields
from typing import Literal

from regard.common.options.checks import check_numbers
from regard.common.options.fields import left_open
from regard.common.suggestions import known

SCHEDULES = ("constant", "inverse-sqrt", "cosine", "linear", "plateau")
# schedules that depend on the number of steps
PLANNED = ("cosine", "linear")
# the options that end a training
ENDS = ("steps", "epochs", "minutes")
PLATEAU_FACTOR, PLATEAU_PATIENCE = 0.5, 2
# the largest whole number: every smaller one is a float64
_LARGEST = 1 << 53
# far beyond any machine
MAX_THREADS = 65_536


@dataclass(frozen=True)
class TrainingConfig:
    """All hyper-parameters. At least one of steps, epochs and minutes is given; the first one reached ends training."""

    steps: int | None = None
    """End after this many steps (updates of the weights)."""
    epochs: float | None = None
    """End after this many passes over the training data; each counts as many batches as the first epoch has."""
    minutes: float | None = None
    """End after this many minutes, validation included; a resumed run counts the minutes before as well. Validates
    at least every tenth of this time, unless validation takes long."""

    lr: float = 1e-3
    """The peak of the learning rate."""
    schedule: Literal["constant", "inverse-sqrt", "cosine", "linear", "plateau"] = "inverse-sqrt"
    """The learning rate after the warm-up; cosine and linear end near zero. With minutes alone they decay over as many
    steps as the measured speed allows."""
    warmup: int = 400
    """Steps over which the learning rate rises to its peak."""
    plateau_factor: float | None = left_open(PLATEAU_FACTOR)
    """With schedule plateau: multiply the learning rate by this when validation no longer improves."""
    plateau_patience: int | None = left_open(PLATEAU_PATIENCE)
    """With schedule plateau: validations without improvement before the learning rate is lowered."""
    betas: tuple[float, float] = (0.9, 0.98)
    """AdamW's decay rates of the averages of gradients and of squared gradients."""
    weight_decay: float = 0.0
    """AdamW's weight decay of matrices; vectors (biases, norms) do not decay."""
    clip: float | None = 1.0
    """Scale gradients down to this global norm; None does not."""
    accumulate: int = 1
    """Batches per step: their gradients are summed, as if they were one larger batch."""

    validate_every: int = 500
    """Steps between validations; the end of training always validates, and minutes validate by time as well."""
    save_every: int = 500
    """Steps between checkpoints; every validation saves one as well."""
    log_every: int = 50
    """Steps between lines of progress."""
    patience: int | None = None
    """End after this many validations in a row without improvement; None does not."""
    average: int = 0
    """At the end average the weights of this many last validations, and keep them if they score better; 0 does not."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 halves the bits of most operations; slow on a processor without units for it."""
    threads: int | None = None
    """Threads of the processor; None times 1, 2, 4, … up to all on a real batch and takes the fewest that are fast."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """The device to train on; auto takes a GPU if there is one."""
    parallel: Literal["replicate", "shard"] = "replicate"
    """Under torchrun: every process holds the whole model (replicate), or a part of it (shard, FSDP2)."""
    retain_memory: bool = True
    """Keep freed memory in the process: faster on a CPU with glibc, whose malloc is set for the whole process."""
    tensorboard: bool = False
    """Write the metrics for TensorBoard as well."""

    def __post_init__(self) -> None:
        if all(getattr(self, name) is None for name in ENDS):
            raise ValueError("steps, epochs and minutes are all None, so training would never end; try steps=10000")
        check_numbers(type(self), vars(self))
        for item in fields(self):
            value = getattr(self, item.name)
            if type(value) is int and abs(value) > _LARGEST:
                raise ValueError(
                    f"{item.name} must be at most {_LARGEST}, got {reprlib.repr(value)}; try a smaller one"
                )
        for name in ("steps", "epochs", "minutes", "lr", "clip", "plateau_factor"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value}; try {name}={_examples()[name]}")
            # clip=inf clips nothing, like None
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
        if self.threads is not None and self.threads > MAX_THREADS:
            raise ValueError(f"threads must be at most {MAX_THREADS:,}, got {self.threads:,}; leave it out to measure")
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
                "warmup=0 with schedule='inverse-sqrt' would lower the learning rate from the first step on; "
                "give warmup=400, or take schedule='constant'"
            )
        if self.schedule != "plateau":
            for name in ("plateau_factor", "plateau_patience"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name}={getattr(self, name)} has no effect with schedule {self.schedule!r}; "
                        f"take schedule='plateau' or leave {name} out"
                    )
        else:
            for name, value in (("plateau_factor", PLATEAU_FACTOR), ("plateau_patience", PLATEAU_PATIENCE)):
                if getattr(self, name) is None:
                    object.__setattr__(self, name, value)
            if self.plateau_factor is not None and self.plateau_factor >= 1:
                raise ValueError(f"plateau_factor must be below 1, got {self.plateau_factor}; try plateau_factor=0.5")


def lasting(minutes: float) -> str:
    """A number of minutes in words: "1 minute", "0.5 minutes"."""
    return f"{minutes:g} minute{'' if minutes == 1 else 's'}"


def _examples() -> dict[str, object]:
    """A valid value per field, for error messages."""
    defaults = {field.name: field.default for field in fields(TrainingConfig) if field.default is not None}
    return defaults | {
        "steps": 10000,
        "epochs": 10,
        "minutes": 30,
        "patience": 5,
        "threads": 1,
        "plateau_factor": PLATEAU_FACTOR,
        "plateau_patience": PLATEAU_PATIENCE,
    }
